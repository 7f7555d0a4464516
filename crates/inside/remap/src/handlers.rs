//! The program's signal handlers in a program that was already running, as the kernel knows them.
//! [`show`] runs before each of them, so that a handler that interrupts a copy of code sees the
//! original, and SIGSEGV is unblocked while it runs. [`crate::attached`] calls this module.
//!
//! Contexts: normal, signal.

use crate::lookup::show_original;
use crate::program::BIT;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use sunder_guest::system::{self, Action};

const SIGNALS: usize = 65;

/// The action that the program wants, for each signal.
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

/// Whether the kernel has our handlers in place of the program's.
static IN_KERNEL: AtomicBool = AtomicBool::new(false);

/// See [`IN_KERNEL`].
pub fn are_in_kernel() -> bool {
    IN_KERNEL.load(Acquire)
}

/// See [`IN_KERNEL`].
pub fn set_in_kernel(ours: bool) {
    IN_KERNEL.store(ours, SeqCst);
}

/// The action that the program last set with a handler.
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

/// The signals whose handlers [`show`] precedes. Not those that can't have a handler, and not the
/// two that the C library reserves: their handlers unwind threads.
pub fn all() -> impl Iterator<Item = usize> {
    (1..SIGNALS).filter(|&s| is_shown(s))
}

/// Whether [`all`] has the signal.
pub fn is_shown(signal: usize) -> bool {
    const CANCELS: usize = 32;
    const SETS_IDS: usize = 33;
    let others = [libc::SIGSEGV, libc::SIGKILL, libc::SIGSTOP];
    signal < SIGNALS
        && ![0, CANCELS, SETS_IDS].contains(&signal)
        && !others.contains(&(signal as c_int))
}

/// Whether an action of the program's has a handler.
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

/// Whether an action that the kernel has is one of ours.
pub fn is_ours(action: &Action) -> bool {
    action.handler == show as *const () as usize
}

/// Sets an action in the kernel; returns whether the kernel accepted it.
pub fn install(signal: usize, action: &Action) -> bool {
    // SAFETY: the action's handler is the program's or ours.
    unsafe { system::set_action(signal, action) == 0 }
}

/// Runs before the program's handlers, and leaves no stack frame.
///
/// # Safety
/// Called only by the kernel, as a signal handler.
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
/// The kernel passes a valid context.
unsafe extern "C" fn prepare(signal: c_int, context: *mut c_void) -> usize {
    // SAFETY: the caller upholds this function's contract.
    show_original(unsafe { &mut *context.cast::<libc::ucontext_t>() });
    get(signal as usize).handler
}
