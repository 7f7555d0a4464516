//! Clocks that the kernel must be asked for, as those of CPU time: its own library in the
//! program (the vDSO) calls it then, where no hook of the C library's sees that bytes were
//! away. They go back, and the clock is asked again. In a library that comes later the
//! vDSO has hooks of its own. Contexts: all.

#![cfg(not(test))]

use crate::{area, real, shared};
use core::ffi::{c_int, c_void};
use sunder_wire::remap::BY_KERNEL;

/// Asks until the answer is not that bytes of ours were away.
fn asked(ask: impl Fn() -> c_int) -> c_int {
    loop {
        let moves = shared::moves();
        let result = ask();
        // `gettimeofday` may be the vDSO's own, which does not set it.
        // SAFETY: the C library's thread-local errno.
        let away = result == -libc::EFAULT
            || result == -1 && unsafe { *libc::__errno_location() } == libc::EFAULT;
        if !away || shared::areas().next().is_none() {
            return result;
        }
        area::roll_back_all(BY_KERNEL);
        let again = ask();
        // They may have been moved again meanwhile.
        if again == 0 || shared::moves() == moves {
            return again;
        }
    }
}

macro_rules! clocks {
    ($($name:ident($first:ident: $first_type:ty, $second:ident: $second_type:ty);)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($first: $first_type, $second: $second_type) -> c_int {
            match real::$name() {
                // SAFETY: handed on.
                Some(real) => asked(|| unsafe { real($first, $second) }),
                None => {
                    // SAFETY: the C library's thread-local errno.
                    unsafe { *libc::__errno_location() = libc::ENOSYS };
                    -1
                }
            }
        }
    )*};
}

clocks! {
    clock_gettime(clock: c_int, at: *mut libc::timespec);
    clock_getres(clock: c_int, at: *mut libc::timespec);
    gettimeofday(at: *mut libc::timeval, zone: *mut c_void);
}
