//! The program's signal handlers in a program that was already running, as the kernel knows them.
//! [`show`] runs before each of them, so that a handler that interrupts a copy of code sees the
//! original, and SIGSEGV is unblocked while it runs. [`crate::attached`] calls this module.
//!
//! Contexts: normal, signal.

use crate::lookup::show_original;
use crate::parked;
use crate::program::BIT;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
use sunder_guest::system::{self, Action};

const SIGNALS: usize = 65;

/// An action in words that any thread may read at any time.
struct Kept {
    handler: AtomicUsize,
    flags: AtomicU64,
    restorer: AtomicUsize,
    mask: AtomicU64,
}

impl Kept {
    const fn new() -> Self {
        Self {
            handler: AtomicUsize::new(0),
            flags: AtomicU64::new(0),
            restorer: AtomicUsize::new(0),
            mask: AtomicU64::new(0),
        }
    }

    fn get(&self) -> Action {
        Action {
            handler: self.handler.load(Acquire),
            flags: self.flags.load(Relaxed),
            restorer: self.restorer.load(Relaxed),
            mask: self.mask.load(Relaxed),
        }
    }

    fn set(&self, action: &Action) {
        self.flags.store(action.flags, Relaxed);
        self.restorer.store(action.restorer, Relaxed);
        self.mask.store(action.mask, Relaxed);
        self.handler.store(action.handler, Release);
    }
}

/// The action that the program last set, for each signal.
static WANTED: [Kept; SIGNALS] = [const { Kept::new() }; SIGNALS];

/// The action that the program last set with a handler. A signal may be on its way to [`show`]
/// while the program ends to handle it.
static HANDLED: [Kept; SIGNALS] = [const { Kept::new() }; SIGNALS];

/// Whether the kernel has our handlers in place of the program's.
static IN_KERNEL: AtomicBool = AtomicBool::new(false);

/// Whether [`wanted`] knows every action, which it does once [`put_in`] has ended.
static ARE_KNOWN: AtomicBool = AtomicBool::new(false);

/// See [`ARE_KNOWN`].
pub fn are_known() -> bool {
    ARE_KNOWN.load(Acquire)
}

/// Runs before any call is answered: what was known may be from an earlier time.
pub fn forget() {
    ARE_KNOWN.store(false, SeqCst);
}

/// See [`IN_KERNEL`].
pub fn are_in_kernel() -> bool {
    IN_KERNEL.load(Acquire)
}

/// Has [`show`] precede the program's handlers. If the tool is killed meanwhile, other threads run:
/// their calls are answered by [`crate::signal_calls`] from here on.
pub fn put_in() {
    IN_KERNEL.store(true, SeqCst);
    for signal in all() {
        // An action of ours is from another thread, which has kept its own.
        let Some(action) = system::action(signal).filter(|a| !is_ours(a)) else {
            continue;
        };
        set_wanted(signal, &action);
        if has_handler(&action) {
            install(signal, &shown(&action));
        }
    }
    ARE_KNOWN.store(true, SeqCst);
}

/// Gives the program's handlers back to the kernel. As in [`put_in`], other threads may run
/// meanwhile, and their calls are answered until all handlers are given back.
pub fn take_out() {
    all().for_each(give_back);
    IN_KERNEL.store(false, SeqCst);
    // What another thread's call has set meanwhile. Calls that end later see the line above.
    all().for_each(give_back);
}

/// See [`WANTED`].
pub fn wanted(signal: usize) -> Action {
    WANTED.get(signal).map_or_else(Action::default, Kept::get)
}

/// Keeps an action that the program sets.
pub fn set_wanted(signal: usize, action: &Action) {
    if has_handler(action)
        && let Some(kept) = HANDLED.get(signal)
    {
        kept.set(action);
    }
    if let Some(kept) = WANTED.get(signal) {
        kept.set(action);
    }
}

/// Gives the kernel the program's action if it has ours. Other threads may change theirs meanwhile:
/// they keep an action by [`set_wanted`] before they give it to the kernel.
pub fn give_back(signal: usize) {
    if !system::action(signal).is_some_and(|a| is_ours(&a)) {
        return;
    }
    loop {
        let action = wanted(signal);
        if !install(signal, &action) || wanted(signal) == action {
            return;
        }
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

/// The program's handler; [`libc::SIG_DFL`] if none is to run.
///
/// # Safety
/// The kernel passes a valid context, and valid information about the signal.
unsafe extern "C" fn prepare(
    signal: c_int,
    info: *const libc::siginfo_t,
    context: *mut c_void,
) -> usize {
    // SAFETY: the caller upholds this function's contract.
    let state = unsafe { &mut *context.cast::<libc::ucontext_t>() };
    let handled = HANDLED.get(signal as usize).map(Kept::get);
    let handled = handled.unwrap_or_default();
    // The kernel has already forgotten a handler that is to run once.
    let resets = handled.flags & libc::SA_RESETHAND as u64 != 0;
    // SAFETY: the caller upholds this function's contract.
    if unsafe { parked::leave_and_signal(signal, info, state, resets) } {
        return libc::SIG_DFL;
    }
    // A thread that was parked may have waited in a copy.
    show_original(state);
    handled.handler
}
