//! The action that the program wants for SIGSEGV, while the kernel has our handler.
//!
//! Contexts: normal, signal.

use crate::area;
use crate::shared;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize};
use sunder_guest::system::{self, Action};
use sunder_wire::remap::BY_DEATH;

/// The handler of the program's action.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FLAGS: AtomicU32 = AtomicU32::new(0);
static MASK: AtomicU64 = AtomicU64::new(0);
static RESTORER: AtomicUsize = AtomicUsize::new(0);

/// The bit of SIGSEGV in a mask.
pub const BIT: u64 = 1 << (libc::SIGSEGV - 1);

/// Whether the constructor has installed our handler in place of the program's.
static REPLACED: AtomicBool = AtomicBool::new(false);

/// See [`REPLACED`].
pub fn is_replaced() -> bool {
    REPLACED.load(Acquire)
}

/// See [`REPLACED`].
pub fn set_replaced() {
    REPLACED.store(true, Release);
}

/// Keeps the program's action.
pub fn set(action: &libc::sigaction) {
    set_kernels(&Action {
        handler: action.sa_sigaction,
        flags: action.sa_flags as u64,
        restorer: action.sa_restorer.map_or(0, |f| f as usize),
        mask: first_word(&action.sa_mask),
    });
}

/// As [`set`], in the kernel's layout.
pub fn set_kernels(action: &Action) {
    MASK.store(action.mask, Relaxed);
    FLAGS.store(action.flags as u32, Relaxed);
    RESTORER.store(action.restorer, Relaxed);
    HANDLER.store(action.handler, Release);
}

/// The program's action, in the kernel's layout.
pub fn get_kernels() -> Action {
    Action {
        handler: HANDLER.load(Acquire),
        flags: FLAGS.load(Relaxed).into(),
        restorer: RESTORER.load(Relaxed),
        mask: MASK.load(Relaxed),
    }
}

/// The program's action, in the C library's layout.
pub fn get() -> libc::sigaction {
    // SAFETY: plain data, for which zeroes are valid.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = HANDLER.load(Acquire);
    action.sa_flags = FLAGS.load(Relaxed) as i32;
    let word = (&raw mut action.sa_mask).cast::<u64>();
    // SAFETY: a `sigset_t` begins with the kernel's 64-bit mask.
    unsafe { word.write_unaligned(MASK.load(Relaxed)) };
    action
}

/// The part of a signal set that the kernel knows.
pub fn first_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: a `sigset_t` begins with the kernel's 64-bit mask.
    unsafe { (&raw const *set).cast::<u64>().read_unaligned() }
}

/// Does with a signal what the kernel would. Returns the program's handler if it has one; the
/// caller jumps to it. The handler's mask is set here, and returning from the signal frame restores
/// the old one.
///
/// # Safety
/// Called by our handler with the kernel's arguments.
pub unsafe fn deliver(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> usize {
    // SAFETY: the caller upholds this function's contract.
    let (from_kernel, mask) = unsafe {
        let state = &*context.cast::<libc::ucontext_t>();
        ((*info).si_code > 0, first_word(&state.uc_sigmask))
    };
    let handler = HANDLER.load(Acquire);
    let flags = FLAGS.load(Relaxed) as i32;
    match handler {
        // A fault can't be ignored: the instruction would fault again.
        libc::SIG_IGN if !from_kernel => 0,
        libc::SIG_DFL | libc::SIG_IGN => {
            // A core file must have the bytes where the program's code and symbols expect them.
            area::roll_back_all(BY_DEATH);
            // SAFETY: the caller upholds this function's contract.
            end(signal, from_kernel, unsafe { &mut *context.cast() });
            0
        }
        _ => {
            if flags & libc::SA_RESETHAND != 0 {
                HANDLER.store(libc::SIG_DFL, Release);
            }
            // SIGSEGV stays unblocked, because the program's handler may access moved bytes.
            let during = (mask | MASK.load(Relaxed)) & !BIT;
            // After the program has confined itself, the mask stays as in our handler: all signals
            // blocked.
            if !shared::is_confined() {
                system::set_mask(libc::SIG_SETMASK, during);
            }
            handler
        }
    }
}

/// Ends the program as the signal would natively.
fn end(signal: c_int, from_kernel: bool, state: &mut libc::ucontext_t) {
    if from_kernel {
        // The instruction faults again, and a fault with its signal blocked ends the process. Our
        // handler stays installed: other threads may still leave copies of code by faults, and none
        // of these may be taken for the cause of death.
        let word = (&raw mut state.uc_sigmask).cast::<u64>();
        // SAFETY: a `sigset_t` begins with the kernel's 64-bit mask.
        unsafe { word.write_unaligned(word.read_unaligned() | BIT) };
        return;
    }
    // SAFETY: the default action runs no code.
    unsafe { system::set_action(signal as usize, &Action::default()) };
    // The signal is blocked until the handler returns.
    system::send(signal);
}
