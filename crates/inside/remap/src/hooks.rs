//! What the hooks of the C library's kernel calls do. Contexts: all.

use crate::{area, attached, shared};
use sunder_hooks::{Call, Hooks};
use sunder_wire::remap::{BY_KERNEL, BY_MAPPING};

/// The two hooks.
pub const HOOKS: Hooks = Hooks { instead, failed };

/// No heap shrinks by so many bytes at once: a mapping farther above its end is not the heap.
const LARGEST_HEAP: u64 = 1 << 38;

/// Runs in place of a call that changes the address space: bytes of the pages that it affects are
/// moved back first.
unsafe extern "C" fn instead(call: &mut Call) {
    if attached::is_about_signals(call.number) {
        // SAFETY: the program's own call, with its own arguments.
        return unsafe { attached::instead(call) };
    }
    if attached::is_a_transfer(call.number) {
        // SAFETY: the program's own call, with its own arguments.
        return unsafe { attached::transfer(call) };
    }
    // Bytes that are moved back must not be moved again before the call has returned.
    let hold = shared::Hold::new();
    if shared::anything_moved() {
        let [at, len, size, flags, to, _] = call.arguments.map(|a| a as u64);
        match call.number {
            // New code may make kernel calls without hooks: the tool examines it before anything is
            // moved again.
            libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect if is_code(size) => {
                area::roll_back_all(BY_MAPPING);
            }
            // Everything above the new end of the heap is unmapped; 0 only asks for the end.
            libc::SYS_brk if at == 0 => {}
            libc::SYS_brk => area::roll_back_in(at, LARGEST_HEAP, BY_MAPPING),
            // Without `MAP_FIXED` the address is a hint, and no mapping is replaced.
            libc::SYS_mmap if flags as i32 & libc::MAP_FIXED == 0 => {}
            libc::SYS_mremap => {
                area::roll_back_in(at, len, BY_MAPPING);
                area::roll_back_in(to, size, BY_MAPPING);
            }
            _ => area::roll_back_in(at, len, BY_MAPPING),
        }
    }
    // SAFETY: the program's own call, with its own arguments.
    unsafe { call.make() };
    drop(hold);
}

/// Whether memory with these rights can be executed.
pub const fn is_code(rights: u64) -> bool {
    rights & libc::PROT_EXEC as u64 != 0
}

/// Runs after a call that could not access its memory: if any bytes have moved, they are moved
/// back, and the call is made again.
unsafe extern "C" fn failed(call: &mut Call) {
    if shared::control().is_none() || call.number < 0 {
        return;
    }
    // SAFETY: the caller upholds this function's contract.
    unsafe { again(call) };
}

/// Repeats a call that failed with `EFAULT`, if moved bytes may be the reason.
///
/// # Safety
/// `call` is the program's own call, which has just failed with `EFAULT`.
pub unsafe fn again(call: &mut Call) {
    // Another thread may have moved them back since the call failed.
    if shared::areas().next().is_none() {
        return;
    }
    loop {
        let moves = shared::moves();
        area::roll_back_all(BY_KERNEL);
        // SAFETY: the program's own call, with its own arguments.
        unsafe { call.make() };
        // The bytes may have been moved again meanwhile.
        if call.result != -(libc::EFAULT as isize) || shared::moves() == moves {
            return;
        }
    }
}
