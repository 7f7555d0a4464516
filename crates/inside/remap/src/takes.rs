//! Interposed functions that take something from the kernel, such as a connection or a child's exit
//! status, before it is written to the program's memory. If the write fails, the item is lost, and
//! a repeated call ([`crate::hooks`]) takes the next one or waits. So the bytes are moved back
//! first.
//!
//! Contexts: all.

#![cfg(not(test))]

use crate::{area, real, shared};
use core::ffi::{c_int, c_void};
use core::ptr::null;
use sunder_wire::remap::BY_KERNEL;

/// Upper bound of a socket address, in bytes.
const ADDRESS: u64 = 256;

/// Moves the bytes back to which the kernel will write, and keeps them in place until [`end`].
/// Returns no guard value that must be dropped, because the thread may be cancelled in the call.
fn begin<T>(at: *const T, len: u64) -> Option<usize> {
    if at.is_null() {
        return None;
    }
    let place = shared::begin_use(at as u64, len);
    area::roll_back_in(at as u64, len, BY_KERNEL);
    Some(place)
}

fn end(place: Option<usize>) {
    if let Some(place) = place {
        shared::end_use(place);
    }
}

macro_rules! takes {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty,
       $first:expr, $first_len:expr, $second:expr, $second_len:expr;)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
            let places = (begin($first, $first_len), begin($second, $second_len));
            let result = match real::$name() {
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                Some(real) => unsafe { real($($argument),*) },
                None => {
                    // SAFETY: the C library returns the valid address of this thread's `errno`.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    -1
                }
            };
            end(places.0);
            end(places.1);
            result
        }
    )*};
}

const INFO: u64 = size_of::<libc::siginfo_t>() as u64;
const USAGE: u64 = size_of::<libc::rusage>() as u64;

takes! {
    accept(file: c_int, name: *mut c_void, len: *mut u32) -> c_int, name, ADDRESS, len, 4;
    accept4(file: c_int, name: *mut c_void, len: *mut u32, flags: c_int) -> c_int, name, ADDRESS, len, 4;
    wait(status: *mut c_int) -> c_int, status, 4, null::<u8>(), 0;
    waitpid(child: c_int, status: *mut c_int, options: c_int) -> c_int, status, 4, null::<u8>(), 0;
    wait3(status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> c_int, status, 4, usage, USAGE;
    wait4(child: c_int, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> c_int, status, 4, usage, USAGE;
    waitid(kind: u32, child: u32, info: *mut libc::siginfo_t, options: c_int) -> c_int, info, INFO, null::<u8>(), 0;
    sigwaitinfo(set: *const libc::sigset_t, info: *mut libc::siginfo_t) -> c_int, info, INFO, null::<u8>(), 0;
    sigtimedwait(set: *const libc::sigset_t, info: *mut libc::siginfo_t, time: *const libc::timespec) -> c_int, info, INFO, null::<u8>(), 0;
    msgrcv(queue: c_int, message: *mut c_void, len: usize, kind: i64, flags: c_int) -> isize, message, len as u64 + 8, null::<u8>(), 0;
}
