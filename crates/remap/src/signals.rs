//! The functions by which a program handles signals. SIGSEGV's handler stays ours,
//! the program's is kept beside it ([`crate::program`]), and no thread blocks the
//! signal: a fault would then end it. Contexts: normal, signal.

#![cfg(not(test))]

use crate::program::{self, BIT};
use crate::{area, real, shared};
use core::ffi::{c_int, c_void};
use sunder_wire::remap::BY_KERNEL;

fn fails() -> c_int {
    // SAFETY: the C library's thread-local errno.
    unsafe { *libc::__errno_location() = libc::ENOSYS };
    -1
}

/// `set` without SIGSEGV.
///
/// # Safety
/// `set` is a valid signal set.
unsafe fn open(set: *const libc::sigset_t) -> libc::sigset_t {
    // SAFETY: by the caller; a set begins with the kernel's word.
    unsafe {
        let mut copy = *set;
        let word = (&raw mut copy).cast::<u64>();
        word.write_unaligned(word.read_unaligned() & !BIT);
        copy
    }
}

/// The kernel writes there, and the C library does not say if it can't.
fn written<T>(at: *mut T) {
    if !at.is_null() && shared::anything_moved() {
        area::roll_back_in(at as u64, size_of::<T>() as u64, BY_KERNEL);
    }
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
    if signal == libc::SIGSEGV && crate::start::is_ours() {
        let before = program::get();
        // SAFETY: as the C library demands.
        unsafe {
            if let Some(new) = new.as_ref() {
                program::set(new);
            }
            if let Some(old) = old.as_mut() {
                *old = before;
            }
        }
        return 0;
    }
    let Some(real) = real::sigaction() else {
        return fails();
    };
    // SAFETY: handed on, with an action on our stack where one is given. What the
    // program reads back lacks the signal in the mask, which has no effect of its own.
    unsafe {
        let Some(wanted) = new.as_ref() else {
            return real(signal, new, old);
        };
        let mut action = *wanted;
        action.sa_mask = open(&raw const wanted.sa_mask);
        real(signal, &raw const action, old)
    }
}

/// What `signal` and its kin do, by `sigaction`.
///
/// # Safety
/// As `signal`.
unsafe fn simple(signal: c_int, handler: libc::sighandler_t, flags: c_int) -> libc::sighandler_t {
    // SAFETY: plain data, for which zeroes are valid.
    let (mut new, mut old): (libc::sigaction, libc::sigaction) =
        unsafe { (core::mem::zeroed(), core::mem::zeroed()) };
    new.sa_sigaction = handler;
    new.sa_flags = flags;
    // SAFETY: both are valid actions.
    let result = unsafe { sigaction(signal, &raw const new, &raw mut old) };
    if result == 0 {
        old.sa_sigaction
    } else {
        libc::SIG_ERR
    }
}

macro_rules! simple {
    ($($name:ident $flags:expr;)*) => {$(
        /// Interposed; see the C library's manual.
        ///
        /// # Safety
        /// As the C library demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name(
            signal: c_int,
            handler: libc::sighandler_t,
        ) -> libc::sighandler_t {
            // SAFETY: handed on.
            unsafe { simple(signal, handler, $flags) }
        }
    )*};
}

simple! {
    signal libc::SA_RESTART;
    bsd_signal libc::SA_RESTART;
    ssignal libc::SA_RESTART;
    sysv_signal libc::SA_RESETHAND | libc::SA_NODEFER;
    __sysv_signal libc::SA_RESETHAND | libc::SA_NODEFER;
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
    let Some(real) = real::pthread_sigmask() else {
        return libc::ENOSYS;
    };
    written(old);
    // SAFETY: handed on, with a set on our stack where one is given.
    unsafe {
        if set.is_null() || how == libc::SIG_UNBLOCK {
            real(how, set, old)
        } else {
            real(how, &open(set), old)
        }
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
    let Some(real) = real::sigprocmask() else {
        return fails();
    };
    written(old);
    // SAFETY: as above.
    unsafe {
        if set.is_null() || how == libc::SIG_UNBLOCK {
            real(how, set, old)
        } else {
            real(how, &open(set), old)
        }
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigsuspend(set: *const libc::sigset_t) -> c_int {
    match real::sigsuspend() {
        // SAFETY: handed on, with a set on our stack.
        Some(real) if !set.is_null() => unsafe { real(&open(set)) },
        _ => fails(),
    }
}

/// Calls `call` with `set` opened.
///
/// # Safety
/// `set` is null or a valid set.
unsafe fn with_open(
    set: *const libc::sigset_t,
    call: impl FnOnce(*const libc::sigset_t) -> c_int,
) -> c_int {
    if set.is_null() {
        return call(set);
    }
    // SAFETY: by the caller.
    let copy = unsafe { open(set) };
    call(&raw const copy)
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn ppoll(
    files: *mut libc::pollfd,
    count: libc::nfds_t,
    time: *const libc::timespec,
    set: *const libc::sigset_t,
) -> c_int {
    let Some(real) = real::ppoll() else {
        return fails();
    };
    // SAFETY: handed on.
    unsafe { with_open(set, |set| real(files, count, time, set)) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pselect(
    count: c_int,
    read: *mut c_void,
    write: *mut c_void,
    except: *mut c_void,
    time: *const libc::timespec,
    set: *const libc::sigset_t,
) -> c_int {
    let Some(real) = real::pselect() else {
        return fails();
    };
    // SAFETY: handed on.
    unsafe { with_open(set, |set| real(count, read, write, except, time, set)) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn epoll_pwait(
    file: c_int,
    events: *mut libc::epoll_event,
    most: c_int,
    time: c_int,
    set: *const libc::sigset_t,
) -> c_int {
    let Some(real) = real::epoll_pwait() else {
        return fails();
    };
    // SAFETY: handed on.
    unsafe { with_open(set, |set| real(file, events, most, time, set)) }
}
