//! Functions that take something from the kernel, a connection or a child's end, before it writes
//! to the program's memory. One that could not write there has taken it nevertheless, and made
//! again ([`crate::hooks`]) it takes the next, or waits: so the bytes go back first. Contexts: all.

#![cfg(not(test))]

use crate::{area, real, shared};
use core::ffi::{c_int, c_void};
use core::ptr::null;
use sunder_wire::remap::BY_KERNEL;

/// Bytes of the longest address of a socket, and more.
const ADDRESS: u64 = 256;

/// The kernel writes there: nothing of it is moved, or will be before [`end`]. No value that must
/// be dropped: the thread may be cancelled in the call.
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
                // SAFETY: handed on.
                Some(real) => unsafe { real($($argument),*) },
                None => {
                    // SAFETY: the C library's thread-local errno.
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
