//! The interposed signal functions. They hide the timers' signal: the program sees the signal as it
//! would be without us ([`blocks`]).
//!
//! Contexts: normal, signal, post-fork (without timers; all calls are passed on).

#![cfg(not(test))]

use crate::{blocks, real, timer};
use core::ffi::c_int;
use sunder_guest::next::fails;
use sunder_guest::system;

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

/// Changes the mask, but never blocks our signal. The C library treats its own signals in the same
/// way; unlike them, ours is shown as the program has left it.
///
/// # Safety
/// As the C library demands.
unsafe fn mask(
    real: Mask,
    how: c_int,
    set: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    blocks::settle();
    let Some(signal) = timer::signal() else {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(how, set, old) };
    };
    let before = blocks::in_this_thread();
    // SAFETY: the caller's arguments, with a set on our stack in place of a given one.
    unsafe {
        let names_ours = !set.is_null() && libc::sigismember(set, signal) == 1;
        let result = if set.is_null() || how == libc::SIG_UNBLOCK {
            real(how, set, old)
        } else {
            real(how, &without_ours(set), old)
        };
        if result != 0 {
            return result;
        }
        if names_ours || !set.is_null() && how == libc::SIG_SETMASK {
            blocks::set(names_ours && how != libc::SIG_UNBLOCK);
        }
        if before && !old.is_null() {
            libc::sigaddset(old, signal);
        }
        0
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

/// Interposed; see the C library's manual. It waits again where the C library's function does, and
/// after a signal of our timers.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigwait(set: *const libc::sigset_t, signal: *mut c_int) -> c_int {
    // SAFETY: the caller's arguments; `errno` is this thread's.
    unsafe {
        let errno = libc::__errno_location();
        let before = *errno;
        let got = loop {
            let got = sigwaitinfo(set, core::ptr::null_mut());
            if got >= 0 || *errno != libc::EINTR {
                break got;
            }
        };
        if got < 0 {
            return core::mem::replace(&mut *errno, before);
        }
        *signal = got;
    }
    0
}

/// Whether a wait was ended by one of our timers.
fn is_ours(got: c_int, info: &libc::siginfo_t) -> bool {
    got > 0 && (timer::is_ours(got) || timer::given_up() == Some(got)) && timer::is_from_timer(info)
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
    blocks::settle();
    // SAFETY: plain data, and the caller's arguments.
    unsafe {
        let mut local: libc::siginfo_t = core::mem::zeroed();
        let info = if info.is_null() { &raw mut local } else { info };
        loop {
            let got = real(set, info);
            if !is_ours(got, &*info) {
                return got;
            }
        }
    }
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
    const SECOND: u64 = 1_000_000_000;
    let Some(real) = real::sigtimedwait() else {
        return fails();
    };
    blocks::settle();
    // SAFETY: plain data, and the caller's arguments.
    unsafe {
        let mut local: libc::siginfo_t = core::mem::zeroed();
        let info = if info.is_null() { &raw mut local } else { info };
        let begun = system::now();
        let mut got = real(set, info, timeout);
        while is_ours(got, &*info) {
            let mut rest = libc::timespec {
                tv_sec: 0,
                tv_nsec: 0,
            };
            let until = if let Some(timeout) = timeout.as_ref() {
                let whole = (timeout.tv_sec as u64).saturating_mul(SECOND) + timeout.tv_nsec as u64;
                let left = whole.saturating_sub(system::now() - begun);
                rest.tv_sec = (left / SECOND) as i64;
                rest.tv_nsec = (left % SECOND) as i64;
                &raw const rest
            } else {
                timeout
            };
            got = real(set, info, until);
        }
        got
    }
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
    // SAFETY: the caller's arguments, perhaps with a set on our stack.
    unsafe {
        if timer::signal().is_some_and(|ours| libc::sigismember(set, ours) == 1) && is_choice(set) {
            timer::yield_signal();
        }
        blocks::settle();
        real(fd, &without_ours(set), flags)
    }
}

/// Whether a set was put together signal by signal: it lacks some that a full one has.
///
/// # Safety
/// `set` is a valid signal set.
unsafe fn is_choice(set: *const libc::sigset_t) -> bool {
    // SAFETY: by this function's contract.
    (libc::SIGRTMIN()..=libc::SIGRTMAX())
        .any(|signal| unsafe { libc::sigismember(set, signal) != 1 })
}
