//! Interposed clock functions. Some clocks, such as those of CPU time, need a kernel call, and the
//! vDSO (the kernel's library in the program) makes it, where no hook sees that it failed because
//! bytes had moved. Here the bytes are moved back and the clock is read again. In a program that
//! was already running, the vDSO has hooks of its own instead.
//!
//! Contexts: all.

#![cfg(not(test))]

use crate::{area, real, shared};
use core::ffi::{c_int, c_void};
use sunder_wire::remap::BY_KERNEL;

/// Reads the clock until it no longer fails because of moved bytes.
fn asked(ask: impl Fn() -> c_int) -> c_int {
    loop {
        let moves = shared::moves();
        let result = ask();
        // `gettimeofday` may be the vDSO's own, which does not set `errno`.
        // SAFETY: the C library returns the valid address of this thread's `errno`.
        let away = result == -libc::EFAULT
            || result == -1 && unsafe { *libc::__errno_location() } == libc::EFAULT;
        if !away || shared::areas().next().is_none() {
            return result;
        }
        area::roll_back_all(BY_KERNEL);
        let again = ask();
        // The bytes may have been moved again meanwhile.
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
                // SAFETY: the caller's arguments, passed on unchanged under the same contract.
                Some(real) => asked(|| unsafe { real($first, $second) }),
                None => {
                    // SAFETY: the C library returns the valid address of this thread's `errno`.
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
