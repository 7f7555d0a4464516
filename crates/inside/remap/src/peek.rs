//! Reading and writing memory of the program's that may not be there: what the kernel
//! would answer with `EFAULT`. Contexts: all in which SIGSEGV is open; as long as it is ours
//! ([`close`]), by a fault, which costs nothing where there is none.

use crate::fault::{go, ip};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32};
use sunder_guest::system;

/// SIGSEGV is about to be the program's again.
static CLOSED: AtomicBool = AtomicBool::new(cfg!(not(test)));
/// Threads that look, and may fault.
static LOOKING: AtomicU32 = AtomicU32::new(0);

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

/// From now on nobody faults here. Others only run meanwhile if the tool has been killed, or
/// when the program confines itself.
pub fn close() {
    /// A thread that a signal's handler has called away from here does not come back soon.
    const TRIES: u32 = 10_000;
    CLOSED.store(true, SeqCst);
    for _ in 0..TRIES {
        if LOOKING.load(SeqCst) == 0 {
            return;
        }
        system::give_way();
    }
}

/// SIGSEGV is ours from now on.
pub fn open() {
    CLOSED.store(false, SeqCst);
}

/// Does something by a fault if that can be, else in the other way.
fn by_fault<T>(by_fault: impl FnOnce() -> T, else_by: impl FnOnce() -> T) -> T {
    LOOKING.fetch_add(1, SeqCst);
    let result = if CLOSED.load(SeqCst) {
        else_by()
    } else {
        by_fault()
    };
    LOOKING.fetch_sub(1, SeqCst);
    result
}

/// Has the kernel transfer a word between a place of ours and the program's; whether it did.
fn transfer(number: i64, ours: *mut u64, at: u64) -> bool {
    let (own, its) = ([ours as usize, 8], [at as usize, 8]);
    let process = system::process_id() as usize;
    let sides = (&raw const own as usize, &raw const its as usize);
    let arguments = [process, sides.0, 1, sides.1, 1, 0];
    // SAFETY: a place of ours, and one that the caller may ask about.
    unsafe { system::call(number, arguments) == 8 }
}

/// The word at `at`; none if it can't be read.
pub fn word(at: u64) -> Option<u64> {
    let (mut value, mut read) = (0, 0);
    let done = by_fault(
        // SAFETY: a place of ours.
        || unsafe { get(at, &raw mut value) == 0 },
        || transfer(libc::SYS_process_vm_readv, &raw mut read, at),
    );
    done.then_some(value | read)
}

/// Writes the word at `at`; whether that worked.
///
/// # Safety
/// The program gave the address for this.
pub unsafe fn set_word(at: u64, value: u64) -> bool {
    let mut copy = value;
    by_fault(
        // SAFETY: by the caller.
        || unsafe { put(at, value) == 0 },
        || transfer(libc::SYS_process_vm_writev, &raw mut copy, at),
    )
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

#[cfg(test)]
mod tests {
    use super::*;

    /// What was asked for while SIGSEGV goes back to the program is answered, and nobody faults.
    #[test]
    fn when_it_is_closed_the_kernel_looks() {
        const NOWHERE: u64 = 16;
        let mut place = 7u64;
        let at = &raw mut place as u64;
        close();
        assert_eq!((word(at), word(NOWHERE)), (Some(7), None));
        // SAFETY: a place of ours, and one that is not there.
        let written = unsafe { (set_word(at, 8), set_word(NOWHERE, 8)) };
        assert_eq!(written, (true, false));
        assert_eq!(word(at), Some(8));
        open();
    }
}
