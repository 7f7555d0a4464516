//! `fork`. Other threads go on while a thread forks, so its child may find any lock held and what is
//! behind it half changed. No lock is held across the fork to prevent that: signal handlers and the
//! program's own fork handlers run meanwhile, and the C library waits for locks of its own, under
//! which other threads allocate. Instead the child makes everything good before it goes on
//! ([`after_in_child`]).
//!
//! The kernel copies page after page while other threads write, so the child may also have the later
//! of two writes without the earlier one. What other threads may have been changing is therefore
//! not believed: the child goes without it, or works it out anew. What the forking thread alone
//! changes is whole, and so is all that happened before it called `fork`.
//!
//! Contexts: `prepare` before `main`; the handlers: normal and signal, in a forking thread.

use crate::local::local;
use crate::{arena, huge, pool, shared, site};
use core::ffi::c_char;
use core::sync::atomic::{AtomicPtr, Ordering};

/// glibc's `__libc_single_threaded`: not 0 while the process certainly has one thread. Null if the C
/// library does not have it.
static IS_ALONE: AtomicPtr<c_char> = AtomicPtr::new(core::ptr::null_mut());

/// Called once, by [`crate::start`].
pub fn prepare() {
    // SAFETY: the name is a C string; the functions have the required types.
    unsafe {
        let variable = libc::dlsym(libc::RTLD_DEFAULT, c"__libc_single_threaded".as_ptr());
        IS_ALONE.store(variable.cast(), Ordering::Relaxed);
        libc::pthread_atfork(Some(before), None, Some(after_in_child));
    }
}

/// In the thread that forks. The child can't ask this later: it always has one thread.
extern "C" fn before() {
    let variable = IS_ALONE.load(Ordering::Relaxed);
    // SAFETY: the thread's own words. The C library's variable lives as long as the process; other
    // threads write it only when there are some.
    unsafe {
        (*local()).forks_alone = u32::from(!variable.is_null() && variable.read_volatile() != 0)
    };
}

extern "C" fn after_in_child() {
    // SAFETY: the thread's own words, and its own heap.
    unsafe {
        if (*local()).forks_alone != 0 {
            return;
        }
        site::after_fork();
        shared::after_fork();
        pool::after_fork();
        arena::after_fork();
        huge::after_fork();
        let heap = (*local()).heap;
        if !heap.is_null() {
            (*heap).forget_returned();
        }
    }
}
