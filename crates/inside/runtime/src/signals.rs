//! The interposed signal functions. They hide the timers' signal: the program sees the signal as it
//! would be without us.
//!
//! Contexts: normal, signal, post-fork (without timers; all calls are passed on).

#![cfg(not(test))]

use crate::{real, timer};
use core::ffi::c_int;

fn fails() -> c_int {
    // SAFETY: the C library returns the valid address of this thread's `errno`.
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
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(signal, new, old) };
    }
    if !new.is_null() {
        timer::yield_signal();
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        let result = unsafe { real(signal, new, old) };
        if result != 0 {
            return result;
        }
    }
    if !old.is_null() {
        // Without us the action would be the default, which is all zero.
        // SAFETY: the program's own place for the result; plain data.
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
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
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
    let mut copy = unsafe { *set };
    if let Some(signal) = timer::signal() {
        // SAFETY: the copy is a signal set.
        unsafe { libc::sigdelset(&raw mut copy, signal) };
    }
    copy
}

type Mask = unsafe extern "C-unwind" fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int;

/// Changes the mask, but never blocks our signal: a program that blocks all
/// signals in its worker threads would otherwise not be sampled. The C library
/// treats its own signals in the same way.
///
/// # Safety
/// As the C library demands.
unsafe fn mask(
    real: Mask,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: the caller's arguments, with a set on our stack in place of a given one.
    unsafe {
        if set.is_null() || how == libc::SIG_UNBLOCK {
            real(how, set, old)
        } else {
            real(how, &without_ours(set), old)
        }
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_sigmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    match real::pthread_sigmask() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { mask(real, how, set, old) },
        None => libc::ENOSYS,
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigprocmask(
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    match real::sigprocmask() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { mask(real, how, set, old) },
        None => fails(),
    }
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
    // SAFETY: the caller's arguments, with a set on our stack.
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
    // SAFETY: the caller's arguments, with a set on our stack.
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
    // SAFETY: the caller's arguments, with a set on our stack.
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
    // SAFETY: the caller's arguments, with a set on our stack.
    unsafe { real(fd, &without_ours(set), flags) }
}
