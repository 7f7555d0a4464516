//! Interposed functions that pass memory to the kernel of which a part may lie on moved pages. The
//! kernel would then stop in the middle without an error that [`crate::hooks`] could detect and
//! repair, so the bytes are moved back first.
//!
//! Contexts: all.

#![cfg(not(test))]

use crate::peek::word_in_place;
use crate::{area, real, shared};
use core::ffi::{c_int, c_void};
use sunder_wire::remap::BY_KERNEL;

fn fails() -> isize {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Moves these bytes back and keeps them in place until [`shared::end_use`]. Returns no guard value
/// that must be dropped, because the thread may be cancelled in the call.
#[inline]
fn used(at: *const c_void, len: usize) -> usize {
    let place = shared::begin_use(at as u64, len as u64);
    if shared::anything_moved() {
        area::roll_back_in(at as u64, len as u64, BY_KERNEL);
    }
    place
}

/// As [`used`], for an array of `iovec`. If the array can't be read, the kernel returns the error.
fn all_used(at: *const libc::iovec, count: usize) -> usize {
    /// The kernel accepts no more vectors.
    const MOST: usize = 1024;
    let count = if count > MOST { 0 } else { count as u64 };
    let (mut start, mut end) = (at as u64, at as u64 + count * 16);
    for i in 0..count {
        let vector = at as u64 + 16 * i;
        let (Some(from), Some(len)) = (word_in_place(vector), word_in_place(vector + 8)) else {
            break;
        };
        start = start.min(from);
        end = end.max(from.saturating_add(len));
    }
    let place = shared::begin_use(start, end - start);
    if shared::anything_moved() {
        area::roll_back_in(start, end - start, BY_KERNEL);
    }
    place
}

macro_rules! calls {
    ($($name:ident($file:ident, $at:ident: $type:ty, $len:ident: $len_type:ty $(, $more:ident: $more_type:ty)*) $used:ident;)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            $file: c_int, $at: $type, $len: $len_type $(, $more: $more_type)*
        ) -> isize {
            let place = $used($at, $len as usize);
            let result = match real::$name() {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                Some(real) => unsafe { real($file, $at, $len $(, $more)*) },
                None => fails(),
            };
            shared::end_use(place);
            result
        }
    )*};
}

calls! {
    read(file, at: *mut c_void, len: usize) used;
    write(file, at: *mut c_void, len: usize) used;
    pread(file, at: *mut c_void, len: usize, offset: i64) used;
    pwrite(file, at: *mut c_void, len: usize, offset: i64) used;
    pread64(file, at: *mut c_void, len: usize, offset: i64) used;
    pwrite64(file, at: *mut c_void, len: usize, offset: i64) used;
    readv(file, at: *const libc::iovec, count: c_int) all_used;
    writev(file, at: *const libc::iovec, count: c_int) all_used;
    preadv(file, at: *const libc::iovec, count: c_int, offset: i64) all_used;
    pwritev(file, at: *const libc::iovec, count: c_int, offset: i64) all_used;
    recv(file, at: *mut c_void, len: usize, flags: c_int) used;
    send(file, at: *mut c_void, len: usize, flags: c_int) used;
    sendto(file, at: *mut c_void, len: usize, flags: c_int, to: *mut c_void, size: u32) used;
}

/// Interposed; see the C library's manual. The kernel removes the message from its queue before it
/// writes the sender's address.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn recvfrom(
    file: c_int,
    at: *mut c_void,
    len: usize,
    flags: c_int,
    from: *mut c_void,
    size: *mut u32,
) -> isize {
    /// Upper bound of a socket address, in bytes.
    const ADDRESS: usize = 256;
    let places = [used(at, len), used(from, ADDRESS), used(size.cast(), 4)];
    let result = match real::recvfrom() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(file, at, len, flags, from, size) },
        None => fails(),
    };
    places.into_iter().for_each(shared::end_use);
    result
}

macro_rules! messages {
    ($($name:ident;)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            file: c_int, message: *mut libc::msghdr, flags: c_int
        ) -> isize {
            // SAFETY: the caller passes a valid message, as the C library demands.
            let places = unsafe {
                match message.as_ref() {
                    Some(parts) => [
                        used(message.cast(), size_of::<libc::msghdr>()),
                        used(parts.msg_name, parts.msg_namelen as usize),
                        used(parts.msg_control, parts.msg_controllen),
                        all_used(parts.msg_iov, parts.msg_iovlen),
                    ],
                    None => core::array::from_fn(|_| used(core::ptr::null(), 0)),
                }
            };
            let result = match real::$name() {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                Some(real) => unsafe { real(file, message, flags) },
                None => fails(),
            };
            places.into_iter().for_each(shared::end_use);
            result
        }
    )*};
}

messages! { recvmsg; sendmsg; }
