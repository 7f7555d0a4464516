//! The program's handlers of signals in a program that was running already, as the
//! kernel knows them. Each stands behind [`show`], so that a handler sees a thread that
//! is in a copy of code in the original, and SIGSEGV is open while it runs. Contexts:
//! normal, signal. Fed by [`crate::attached`].

use crate::fault::show_original;
use crate::program::BIT;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU64, AtomicUsize};
use sunder_guest::system::{self, Action};

const SIGNALS: usize = 65;

/// What the program wants, for each signal.
struct Kept {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

static KEPT: [Kept; SIGNALS] = [const {
    Kept {
        handler: AtomicUsize::new(0),
        flags: AtomicU64::new(0),
        restorer: AtomicUsize::new(0),
        mask: AtomicU64::new(0),
    }
}; SIGNALS];

/// What the program wanted last, when it wanted a handler.
pub fn get(signal: usize) -> Action {
    KEPT.get(signal)
        .map_or_else(Action::default, |kept| Action {
            handler: kept.handler.load(Acquire),
            flags: kept.flags.load(Relaxed),
            restorer: kept.restorer.load(Relaxed),
            mask: kept.mask.load(Relaxed),
        })
}

pub fn set(signal: usize, action: &Action) {
    if let Some(kept) = KEPT.get(signal) {
        kept.flags.store(action.flags, Relaxed);
        kept.restorer.store(action.restorer, Relaxed);
        kept.mask.store(action.mask, Relaxed);
        kept.handler.store(action.handler, Release);
    }
}

/// The signals whose handlers stand behind ours. Not those that can't have any, and not
/// the two that the C library keeps for itself: their handlers unwind threads.
pub fn all() -> impl Iterator<Item = usize> {
    (1..SIGNALS).filter(|&s| is_shown(s))
}

/// See [`all`].
pub fn is_shown(signal: usize) -> bool {
    const CANCELS: usize = 32;
    const SETS_IDS: usize = 33;
    let others = [libc::SIGSEGV, libc::SIGKILL, libc::SIGSTOP];
    signal < SIGNALS
        && ![0, CANCELS, SETS_IDS].contains(&signal)
        && !others.contains(&(signal as c_int))
}

/// Whether the program has a handler in this action.
pub const fn has_handler(action: &Action) -> bool {
    !matches!(action.handler, libc::SIG_DFL | libc::SIG_IGN)
}

/// The action that the kernel gets for one of the program's.
pub fn shown(action: &Action) -> Action {
    Action {
        handler: show as *const () as usize,
        flags: action.flags | libc::SA_SIGINFO as u64,
        restorer: action.restorer,
        mask: action.mask & !BIT,
    }
}

/// Whether the kernel has this action from us.
pub fn is_ours(action: &Action) -> bool {
    action.handler == show as *const () as usize
}

/// Tells the kernel; whether it took it.
pub fn tell(signal: usize, action: &Action) -> bool {
    // SAFETY: its handler is the program's or ours.
    unsafe { system::set_action(signal, action) == 0 }
}

/// Stands before the program's handlers, and leaves no frame.
///
/// # Safety
/// Called by the kernel.
#[unsafe(naked)]
unsafe extern "C" fn show(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    core::arch::naked_asm!(
        "push rdi",
        "push rsi",
        "push rdx",
        "mov rsi, rdx",
        "call {prepare}",
        "pop rdx",
        "pop rsi",
        "pop rdi",
        "mov r11, rax",
        "xor eax, eax",
        "test r11, r11",
        "jz 2f",
        "jmp r11",
        "2:",
        "ret",
        prepare = sym prepare,
    )
}

/// # Safety
/// The kernel passes a context.
unsafe extern "C" fn prepare(signal: c_int, context: *mut c_void) -> usize {
    // SAFETY: by the caller.
    show_original(unsafe { &mut *context.cast::<libc::ucontext_t>() });
    get(signal as usize).handler
}
