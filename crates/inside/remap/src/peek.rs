//! Reads and writes memory of the program's that may be unmapped, for which the kernel would return
//! `EFAULT`. While the handler of SIGSEGV is ours (until [`close`]), an access is simply tried and
//! a fault caught, which costs nothing when there is none.
//!
//! Contexts: all in which SIGSEGV is unblocked.

use crate::area;
use crate::registers::{ip, set_ip};
use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicBool, AtomicU32};
use sunder_guest::system;
use sunder_wire::remap::BY_KERNEL;

/// Set when the handler of SIGSEGV is about to be the program's again; the kernel then checks each
/// access.
static CLOSED: AtomicBool = AtomicBool::new(cfg!(not(test)));
/// The number of threads in an access that may fault.
static ACCESSES: AtomicU32 = AtomicU32::new(0);

/// Reads a word; 0 if that worked. Faults at its first instruction only.
///
/// # Safety
/// `to` may be written to.
#[unsafe(naked)]
unsafe extern "C" fn read(at: u64, to: *mut u64) -> u64 {
    core::arch::naked_asm!("mov rax, [rdi]", "mov [rsi], rax", "xor eax, eax", "ret",)
}

/// Writes a word; 0 if that worked. Faults at its first instruction only.
///
/// # Safety
/// If `at` is writable, all code that reads it accepts the new value.
#[unsafe(naked)]
unsafe extern "C" fn write(at: u64, value: u64) -> u64 {
    core::arch::naked_asm!("mov [rdi], rsi", "xor eax, eax", "ret")
}

/// Both functions continue here after a fault.
#[unsafe(naked)]
unsafe extern "C" fn failure() -> u64 {
    core::arch::naked_asm!("mov eax, 1", "ret")
}

/// After this no access faults. Other threads run meanwhile only if the tool was killed, or if the
/// program confines itself.
pub fn close() {
    /// A signal handler may have interrupted a thread in an access for long; it is not waited for.
    const TRIES: u32 = 10_000;
    CLOSED.store(true, SeqCst);
    for _ in 0..TRIES {
        if ACCESSES.load(SeqCst) == 0 {
            return;
        }
        system::give_way();
    }
}

/// From here on the handler of SIGSEGV is ours.
pub fn open() {
    CLOSED.store(false, SeqCst);
}

/// Calls `by_fault` if faults can be caught now, else `else_by`.
fn by_fault<T>(by_fault: impl FnOnce() -> T, else_by: impl FnOnce() -> T) -> T {
    ACCESSES.fetch_add(1, SeqCst);
    let result = if CLOSED.load(SeqCst) {
        else_by()
    } else {
        by_fault()
    };
    ACCESSES.fetch_sub(1, SeqCst);
    result
}

/// Has the kernel copy a word between an address of ours and one of the program's; returns whether
/// that worked.
fn transfer(number: i64, ours: *mut u64, at: u64) -> bool {
    let (own, its) = ([ours as usize, 8], [at as usize, 8]);
    let process = system::process_id() as usize;
    let sides = (&raw const own as usize, &raw const its as usize);
    let arguments = [process, sides.0, 1, sides.1, 1, 0];
    // SAFETY: `ours` is valid for a word; for the other address the kernel returns an error.
    unsafe { system::call(number, arguments) == 8 }
}

/// The word at `at`; `None` if it can't be read.
pub fn word(at: u64) -> Option<u64> {
    let (mut value, mut copy) = (0, 0);
    let done = by_fault(
        // SAFETY: the target is a local word.
        || unsafe { read(at, &raw mut value) == 0 },
        || transfer(libc::SYS_process_vm_readv, &raw mut copy, at),
    );
    done.then_some(value | copy)
}

/// Reads a word of the program's, moving its bytes back if they are away.
pub fn word_in_place(at: u64) -> Option<u64> {
    word(at).or_else(|| {
        area::roll_back_in(at, 8, BY_KERNEL);
        word(at)
    })
}

/// Copies bytes of the program's, moving them back if they are away; returns whether that worked.
pub fn read_in_place(at: u64, into: &mut [u8]) -> bool {
    let mut place = at;
    let mut rest = into;
    while !rest.is_empty() {
        // An aligned word lies on one page.
        let offset = (place % 8) as usize;
        let Some(word) = word_in_place(place - offset as u64) else {
            return false;
        };
        let bytes = word.to_le_bytes();
        let wanted = bytes.get(offset..).unwrap_or(&[]);
        let count = wanted.len().min(rest.len());
        let (to, others) = rest.split_at_mut(count);
        to.iter_mut().zip(wanted).for_each(|(to, byte)| *to = *byte);
        rest = others;
        match place.checked_add(count as u64) {
            Some(next) => place = next,
            None => return rest.is_empty(),
        }
    }
    true
}

/// Writes the word at `at`; returns whether that worked.
///
/// # Safety
/// The program passed the address so that it is written.
pub unsafe fn set_word(at: u64, value: u64) -> bool {
    let mut copy = value;
    by_fault(
        // SAFETY: the caller upholds this function's contract.
        || unsafe { write(at, value) == 0 },
        || transfer(libc::SYS_process_vm_writev, &raw mut copy, at),
    )
}

/// If the thread faulted in one of the functions above, sends it on to their failure path; false if
/// it did not.
pub fn failed(state: &mut libc::ucontext_t) -> bool {
    let here = ip(state);
    let ours = here == read as *const () as u64 || here == write as *const () as u64;
    if ours {
        set_ip(state, failure as *const () as u64);
    }
    ours
}

#[cfg(test)]
mod tests {
    use super::*;

    /// While SIGSEGV is given back to the program, accesses still work, but through the kernel.
    #[test]
    fn the_kernel_accesses_memory_after_close() {
        const NOWHERE: u64 = 16;
        let mut place = 7u64;
        let at = &raw mut place as u64;
        close();
        assert_eq!((word(at), word(NOWHERE)), (Some(7), None));
        // SAFETY: a local word, and an address that is not mapped.
        let written = unsafe { (set_word(at, 8), set_word(NOWHERE, 8)) };
        assert_eq!(written, (true, false));
        assert_eq!(word(at), Some(8));
        open();
    }
}
