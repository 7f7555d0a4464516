//! What the hooks of the C library's kernel calls do. Contexts: all.

use crate::pages::is_code;
use crate::repeat::repeat;
use crate::{area, shared, signal_calls};
use sunder_hooks::{Call, Hooks};
use sunder_wire::remap::BY_MAPPING;

/// The two hooks.
pub const HOOKS: Hooks = Hooks { instead, failed };

/// No heap shrinks by so many bytes at once: a mapping farther above its end is not the heap.
const LARGEST_HEAP: u64 = 1 << 38;

/// Runs in place of a call that changes the address space: bytes of the pages that it affects are
/// moved back first.
unsafe extern "C" fn instead(call: &mut Call) {
    if signal_calls::is_about_signals(call.number) {
        // SAFETY: the program's own call, with its own arguments.
        return unsafe { signal_calls::instead(call) };
    }
    if signal_calls::is_a_transfer(call.number) {
        // SAFETY: the program's own call, with its own arguments.
        return unsafe { signal_calls::transfer(call) };
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

/// Runs after a call that could not access its memory: if any bytes have moved, they are moved
/// back, and the call is made again.
unsafe extern "C" fn failed(call: &mut Call) {
    if shared::control().is_none() || call.number < 0 {
        return;
    }
    // SAFETY: the caller upholds this function's contract.
    unsafe { repeat(call) };
}
