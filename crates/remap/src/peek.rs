//! Reading and writing memory of the program's that may not be there: what the kernel
//! would answer with `EFAULT`. Contexts: all in which SIGSEGV is open and ours.

use crate::fault::{go, ip};

/// Reads a word; 0 if that worked. Faults at its first instruction only.
///
/// # Safety
/// `to` may be written to.
#[unsafe(naked)]
unsafe extern "C" fn get(at: u64, to: *mut u64) -> u64 {
    core::arch::naked_asm!("mov rax, [rdi]", "mov [rsi], rax", "xor eax, eax", "ret",)
}

/// Writes a word; 0 if that worked. Faults at its first instruction only.
///
/// # Safety
/// If `at` can be written to, whoever reads it can bear that.
#[unsafe(naked)]
unsafe extern "C" fn put(at: u64, value: u64) -> u64 {
    core::arch::naked_asm!("mov [rdi], rsi", "xor eax, eax", "ret")
}

/// Where both go on when they have faulted.
#[unsafe(naked)]
unsafe extern "C" fn no() -> u64 {
    core::arch::naked_asm!("mov eax, 1", "ret")
}

/// The word at `at`; none if it can't be read.
pub fn word(at: u64) -> Option<u64> {
    let mut value = 0;
    // SAFETY: a place of ours.
    (unsafe { get(at, &raw mut value) } == 0).then_some(value)
}

/// Writes the word at `at`; whether that worked.
///
/// # Safety
/// The program gave the address for this.
pub unsafe fn set_word(at: u64, value: u64) -> bool {
    // SAFETY: by the caller.
    unsafe { put(at, value) == 0 }
}

/// Sends a thread on that faulted here; false if it did not.
pub fn failed(state: &mut libc::ucontext_t) -> bool {
    let here = ip(state);
    let ours = here == get as *const () as u64 || here == put as *const () as u64;
    if ours {
        go(state, no as *const () as u64);
    }
    ours
}
