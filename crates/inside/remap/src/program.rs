//! What the program wants done with SIGSEGV, while the signal's handler is ours.
//! Contexts: normal, signal.

use crate::area;
use crate::shared;
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use core::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize};
use sunder_guest::system::{self, Action};
use sunder_wire::remap::BY_DEATH;

/// The program's action.
static HANDLER: AtomicUsize = AtomicUsize::new(libc::SIG_DFL);
static FLAGS: AtomicU32 = AtomicU32::new(0);
static MASK: AtomicU64 = AtomicU64::new(0);
static RESTORER: AtomicUsize = AtomicUsize::new(0);

/// The bit of SIGSEGV in a mask.
pub const BIT: u64 = 1 << (libc::SIGSEGV - 1);

/// Remembers what the program wants.
pub fn set(action: &libc::sigaction) {
    set_kernels(&Action {
        handler: action.sa_sigaction,
        flags: action.sa_flags as u64,
        restorer: action.sa_restorer.map_or(0, |f| f as usize),
        mask: first_word(&action.sa_mask),
    });
}

/// The same, as the kernel is told.
pub fn set_kernels(action: &Action) {
    MASK.store(action.mask, Relaxed);
    FLAGS.store(action.flags as u32, Relaxed);
    RESTORER.store(action.restorer, Relaxed);
    HANDLER.store(action.handler, Release);
}

/// What the program wants, as the kernel would say it.
pub fn get_kernels() -> Action {
    Action {
        handler: HANDLER.load(Acquire),
        flags: FLAGS.load(Relaxed).into(),
        restorer: RESTORER.load(Relaxed),
        mask: MASK.load(Relaxed),
    }
}

/// What the program wants, as it said it.
pub fn get() -> libc::sigaction {
    // SAFETY: plain data, for which zeroes are valid.
    let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
    action.sa_sigaction = HANDLER.load(Acquire);
    action.sa_flags = FLAGS.load(Relaxed) as i32;
    let word = (&raw mut action.sa_mask).cast::<u64>();
    // SAFETY: a set of signals begins with the kernel's.
    unsafe { word.write_unaligned(MASK.load(Relaxed)) };
    action
}

/// The kernel's part of a set.
pub fn first_word(set: &libc::sigset_t) -> u64 {
    // SAFETY: a set of signals begins with the kernel's.
    unsafe { (&raw const *set).cast::<u64>().read_unaligned() }
}

/// Does with a signal what the kernel would; the program's handler if it has one, which
/// is to be entered in our place: the mask is set, and comes back with the frame.
///
/// # Safety
/// Called by the handler with what the kernel passed.
pub unsafe fn deliver(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) -> usize {
    // SAFETY: by the caller.
    let (from_kernel, mask) = unsafe {
        let state = &*context.cast::<libc::ucontext_t>();
        ((*info).si_code > 0, first_word(&state.uc_sigmask))
    };
    let handler = HANDLER.load(Acquire);
    let flags = FLAGS.load(Relaxed) as i32;
    match handler {
        // A fault can't be ignored; it would come again.
        libc::SIG_IGN if !from_kernel => 0,
        libc::SIG_DFL | libc::SIG_IGN => {
            // A core file has the bytes where the program's code and symbols say they are.
            area::roll_back_all(BY_DEATH);
            // SAFETY: by the caller.
            end(signal, from_kernel, unsafe { &mut *context.cast() });
            0
        }
        _ => {
            if flags & libc::SA_RESETHAND != 0 {
                HANDLER.store(libc::SIG_DFL, Release);
            }
            // SIGSEGV stays open: the program's handler may reach for moved bytes.
            let during = (mask | MASK.load(Relaxed)) & !BIT;
            // In a program that confines itself all stay blocked, as in our handler.
            if !shared::is_confined() {
                system::set_mask(libc::SIG_SETMASK, during);
            }
            handler
        }
    }
}

/// Ends the program as the signal would have without us.
fn end(signal: c_int, from_kernel: bool, state: &mut libc::ucontext_t) {
    if from_kernel {
        // The instruction that faulted faults again, and who blocks the signal then dies by
        // it. The handler stays: others may still come out of copies of code by faults, of
        // which none is to be taken for what the program died of.
        let word = (&raw mut state.uc_sigmask).cast::<u64>();
        // SAFETY: a set of signals begins with the kernel's.
        unsafe { word.write_unaligned(word.read_unaligned() | BIT) };
        return;
    }
    // SAFETY: the default.
    unsafe { system::set_action(signal as usize, &Action::default()) };
    // It is blocked until the handler returns.
    system::send(signal);
}
