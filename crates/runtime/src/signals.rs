//! The signal functions of which the timers' signal must stay hidden: the
//! program sees it as it would be without us. Contexts: normal, signal,
//! post-fork (there are no timers then, and all calls are handed on).

#![cfg(not(test))]

use crate::{real, timer};
use core::ffi::c_int;
use core::mem::MaybeUninit;

fn fails() -> c_int {
    // SAFETY: the C library's thread-local errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let Some(real) = real::sigaction() else {
        return fails();
    };
    if !timer::is_ours(signal) {
        // SAFETY: handed on.
        return unsafe { real(signal, new, old) };
    }
    if !new.is_null() {
        timer::yield_signal();
        // SAFETY: handed on.
        let result = unsafe { real(signal, new, old) };
        if result != 0 {
            return result;
        }
    }
    if !old.is_null() {
        // Before us it was at its default, which is all zero.
        // SAFETY: the program's place for the result; plain data.
        unsafe { old.write(core::mem::zeroed()) };
    }
    0
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signal(
    signal: c_int,
    new: libc::sighandler_t,
) -> libc::sighandler_t {
    let Some(real) = real::signal() else {
        fails();
        return libc::SIG_ERR;
    };
    let ours = timer::is_ours(signal);
    if ours {
        timer::yield_signal();
    }
    // SAFETY: handed on.
    let old = unsafe { real(signal, new) };
    if ours && old != libc::SIG_ERR {
        libc::SIG_DFL
    } else {
        old
    }
}

/// `set` without our signal.
///
/// # Safety
/// `set` is a valid signal set.
unsafe fn without_ours(set: *const libc::sigset_t) -> libc::sigset_t {
    // SAFETY: by this function's contract.
    let mut copy = MaybeUninit::new(unsafe { *set });
    for signal in libc::SIGRTMIN()..=libc::SIGRTMAX() {
        if timer::is_ours(signal) {
            // SAFETY: the copy is a signal set.
            unsafe { libc::sigdelset(copy.as_mut_ptr(), signal) };
        }
    }
    // SAFETY: initialised from `set`.
    unsafe { copy.assume_init() }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigwait(set: *const libc::sigset_t, signal: *mut c_int) -> c_int {
    let Some(real) = real::sigwait() else {
        return libc::ENOSYS;
    };
    // SAFETY: handed on, with a set on our stack.
    unsafe { real(&without_ours(set), signal) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigwaitinfo(
    set: *const libc::sigset_t,
    info: *mut libc::siginfo_t,
) -> c_int {
    let Some(real) = real::sigwaitinfo() else {
        return fails();
    };
    // SAFETY: handed on, with a set on our stack.
    unsafe { real(&without_ours(set), info) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigtimedwait(
    set: *const libc::sigset_t,
    info: *mut libc::siginfo_t,
    timeout: *const libc::timespec,
) -> c_int {
    let Some(real) = real::sigtimedwait() else {
        return fails();
    };
    // SAFETY: handed on, with a set on our stack.
    unsafe { real(&without_ours(set), info, timeout) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signalfd(
    fd: c_int,
    set: *const libc::sigset_t,
    flags: c_int,
) -> c_int {
    let Some(real) = real::signalfd() else {
        return fails();
    };
    // SAFETY: handed on, with a set on our stack.
    unsafe { real(fd, &without_ours(set), flags) }
}
