//! The interposed functions by which a program handles signals. The kernel keeps our handler of
//! SIGSEGV and [`crate::program`] keeps the program's. No thread may block the signal, because a
//! fault would then end the process.
//!
//! Contexts: normal, signal.

#![cfg(not(test))]

use crate::program::{self, BIT};
use crate::shared::Hold;
use crate::{area, process, real, shared, stacks};
use core::ffi::{c_int, c_void};
use sunder_guest::next::fails;
use sunder_wire::remap::{BY_KERNEL, BY_SIGNALS};

/// `set` without SIGSEGV.
///
/// # Safety
/// `set` is a valid signal set.
unsafe fn open(set: *const libc::sigset_t) -> libc::sigset_t {
    // SAFETY: the caller passes a valid set, which begins with the kernel's 64-bit mask.
    unsafe {
        let mut copy = *set;
        let word = (&raw mut copy).cast::<u64>();
        word.write_unaligned(word.read_unaligned() & !BIT);
        copy
    }
}

/// The kernel will write to `at`, and the C library does not report if it can't. Moves the bytes
/// back and keeps them in place while the value lives.
fn written<T>(at: *mut T) -> Option<Hold> {
    let hold = (!at.is_null()).then(Hold::new)?;
    if shared::anything_moved() {
        area::roll_back_in(at as u64, size_of::<T>() as u64, BY_KERNEL);
    }
    Some(hold)
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
    // The child of a `vfork` has signal actions of its own.
    if signal == libc::SIGSEGV && program::is_replaced() && !process::is_guest() {
        let before = program::get();
        // SAFETY: the caller passes null or valid actions, as the C library demands.
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
    if !program::is_replaced() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        return unsafe { real(signal, new, old) };
    }
    let before = handlers::get(signal);
    let _hold = written(old);
    // SAFETY: the caller's arguments, with an action on our stack in place of a given one. The
    // action that the program reads back lacks SIGSEGV in its mask, which has no effect by itself.
    unsafe {
        let result = match new.as_ref() {
            None => real(signal, new, old),
            Some(wanted) => {
                let mut action = *wanted;
                action.sa_mask = open(&raw const wanted.sa_mask);
                if !matches!(wanted.sa_sigaction, libc::SIG_DFL | libc::SIG_IGN) {
                    handlers::set(signal, wanted.sa_sigaction, wanted.sa_flags);
                    action.sa_sigaction = handlers::show as *const () as usize;
                    action.sa_flags |= libc::SA_SIGINFO;
                }
                let result = real(signal, &raw const action, old);
                if result != 0 {
                    handlers::set(signal, before.0, before.1);
                }
                result
            }
        };
        match old.as_mut() {
            Some(old)
                if result == 0 && old.sa_sigaction == handlers::show as *const () as usize =>
            {
                old.sa_sigaction = before.0;
                old.sa_flags = old.sa_flags & !libc::SA_SIGINFO | before.1 & libc::SA_SIGINFO;
            }
            _ => {}
        }
        result
    }
}

/// The program's handlers of other signals. Each of them sees a thread that is in a copy of code in
/// the original, and the thread continues there.
mod handlers {
    use core::ffi::{c_int, c_void};
    use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
    use core::sync::atomic::{AtomicI32, AtomicUsize};

    const SIGNALS: usize = 65;

    static HANDLER: [AtomicUsize; SIGNALS] = [const { AtomicUsize::new(0) }; SIGNALS];
    static FLAGS: [AtomicI32; SIGNALS] = [const { AtomicI32::new(0) }; SIGNALS];

    /// Handler and flags of the program's action.
    pub fn get(signal: c_int) -> (usize, c_int) {
        let (handler, flags) = (HANDLER.get(signal as usize), FLAGS.get(signal as usize));
        (
            handler.map_or(0, |h| h.load(Acquire)),
            flags.map_or(0, |f| f.load(Relaxed)),
        )
    }

    pub fn set(signal: c_int, handler: usize, flags: c_int) {
        if let (Some(h), Some(f)) = (HANDLER.get(signal as usize), FLAGS.get(signal as usize)) {
            f.store(flags, Relaxed);
            h.store(handler, Release);
        }
    }

    /// # Safety
    /// Called only by the kernel, as a signal handler.
    pub unsafe extern "C-unwind" fn show(
        signal: c_int,
        info: *mut libc::siginfo_t,
        context: *mut c_void,
    ) {
        let (handler, _) = get(signal);
        if handler == 0 {
            return;
        }
        // SAFETY: the kernel passes a valid context. The program installed this handler for the
        // signal, and a handler with fewer parameters ignores the other arguments.
        unsafe {
            crate::lookup::show_original(&mut *context.cast::<libc::ucontext_t>());
            let handler: unsafe extern "C-unwind" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                core::mem::transmute(handler);
            handler(signal, info, context);
        }
    }
}

/// Whether the program has a handler for one of these signals.
pub fn handles(signals: u64) -> bool {
    (1..=64).any(|signal| signals >> (signal - 1) & 1 != 0 && handlers::get(signal).0 != 0)
}

/// What `signal` and similar functions do, through `sigaction`.
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
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
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
    let _hold = written(old);
    // SAFETY: the caller's arguments, with a set on our stack in place of a given one.
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
    let _hold = written(old);
    // SAFETY: the caller's arguments, with a set on our stack in place of a given one.
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
        // SAFETY: the caller's call, with a set on our stack.
        Some(real) if !set.is_null() => unsafe { real(&open(set)) },
        _ => fails(),
    }
}

/// Calls `call` with `set` without SIGSEGV.
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
    // SAFETY: the caller passes a valid set.
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
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
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
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
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
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { with_open(set, |set| real(file, events, most, time, set)) }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaltstack(
    new: *const libc::stack_t,
    old: *mut libc::stack_t,
) -> c_int {
    let _hold = written(old);
    // SAFETY: the caller passes null or a valid stack, as the C library demands.
    if let Some(stack) = unsafe { new.as_ref() }
        && stack.ss_flags & libc::SS_DISABLE == 0
    {
        let (start, len) = (stack.ss_sp as u64, stack.ss_size as u64);
        if !stacks::add(start, len) {
            shared::withdraw();
        }
        area::roll_back_in(start, len, BY_SIGNALS);
    }
    match real::sigaltstack() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        Some(real) => unsafe { real(new, old) },
        None => fails(),
    }
}
