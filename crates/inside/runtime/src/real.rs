//! The functions that ours interpose: the next definitions in the dynamic linker's order. Those of
//! the malloc family are in `sunder_guest::allocator`.
//!
//! Contexts: pre-init, normal.

use core::ffi::{c_int, c_long, c_ulong, c_void};

/// The start function of a thread.
pub type Start = unsafe extern "C-unwind" fn(*mut c_void) -> *mut c_void;

/// See [`libc::sigaction`].
type Action = libc::sigaction;
/// A handler, as `signal` takes and returns it.
type Handler = libc::sighandler_t;

sunder_guest::functions! {
    all look_up_all;
    pthread_create: fn(*mut libc::pthread_t, *const libc::pthread_attr_t, Start, *mut c_void) -> c_int;
    sigaction: fn(c_int, *const Action, *mut Action) -> c_int;
    signal: fn(c_int, Handler) -> Handler;
    pthread_sigmask: fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
    sigprocmask: fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;
    sigwaitinfo: fn(*const libc::sigset_t, *mut libc::siginfo_t) -> c_int;
    sigtimedwait: fn(*const libc::sigset_t, *mut libc::siginfo_t, *const libc::timespec) -> c_int;
    signalfd: fn(c_int, *const libc::sigset_t, c_int) -> c_int;
    dlclose: fn(*mut c_void) -> c_int;
    mlockall: fn(c_int) -> c_int;
    /// Declared with all arguments; it reads those that the call needs.
    syscall: fn(c_long, usize, usize, usize, usize, usize, usize) -> c_long;
    /// As `syscall`.
    prctl: fn(c_int, c_ulong, c_ulong, c_ulong, c_ulong) -> c_int;
    /// Not interposed: finds the object of an instruction without a lock. Missing before glibc
    /// 2.35.
    _dl_find_object: fn(*mut c_void, *mut c_void) -> c_int;
    /// Not interposed: returns the bounds of a thread's stack.
    pthread_getattr_np: fn(libc::pthread_t, *mut libc::pthread_attr_t) -> c_int;
}
