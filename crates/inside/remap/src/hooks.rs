//! What is done about the C library's kernel calls. Contexts: all.

use crate::{area, attached, shared};
use sunder_hooks::{Call, Hooks};
use sunder_wire::remap::{BY_KERNEL, BY_MAPPING};

/// See the functions.
pub const HOOKS: Hooks = Hooks { instead, failed };

/// No heap of this many bytes shrinks by them at once; what lies farther above its
/// end is no heap.
const LARGEST_HEAP: u64 = 1 << 38;

/// A call that changes the address space: bytes of pages that it is about go back
/// before.
unsafe extern "C" fn instead(call: &mut Call) {
    if attached::is_about_signals(call.number) {
        // SAFETY: the program's own call.
        return unsafe { attached::instead(call) };
    }
    if attached::is_a_transfer(call.number) {
        // SAFETY: the program's own call.
        return unsafe { attached::transfer(call) };
    }
    // What goes back must not be moved again before the call is over.
    let hold = shared::Hold::new();
    if shared::anything_moved() {
        let [at, len, size, flags, to, _] = call.arguments.map(|a| a as u64);
        match call.number {
            // It may make kernel calls that nobody sees: the tool looks at it before
            // anything is moved again.
            libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_pkey_mprotect if is_code(size) => {
                area::roll_back_all(BY_MAPPING);
            }
            // The heap ends there, so that what is above it goes; 0 only asks.
            libc::SYS_brk if at == 0 => {}
            libc::SYS_brk => area::roll_back_in(at, LARGEST_HEAP, BY_MAPPING),
            // An address that is only a hint changes nothing that is there.
            libc::SYS_mmap if flags as i32 & libc::MAP_FIXED == 0 => {}
            libc::SYS_mremap => {
                area::roll_back_in(at, len, BY_MAPPING);
                area::roll_back_in(to, size, BY_MAPPING);
            }
            _ => area::roll_back_in(at, len, BY_MAPPING),
        }
    }
    // SAFETY: the program's own call.
    unsafe { call.make() };
    drop(hold);
}

/// Whether memory with these rights can be executed.
pub const fn is_code(rights: u64) -> bool {
    rights & libc::PROT_EXEC as u64 != 0
}

/// A call that could not reach its memory: if any bytes have moved they go back, and
/// the call is made again.
unsafe extern "C" fn failed(call: &mut Call) {
    if shared::control().is_none() || call.number < 0 {
        return;
    }
    // SAFETY: by the caller.
    unsafe { again(call) };
}

/// Makes a call again that could not reach its memory, if that may have been because of bytes
/// that had moved.
///
/// # Safety
/// The program's own call, which has just failed so.
pub unsafe fn again(call: &mut Call) {
    // Another thread may have put them back since the call failed.
    if shared::areas().next().is_none() {
        return;
    }
    loop {
        let moves = shared::moves();
        area::roll_back_all(BY_KERNEL);
        // SAFETY: the program's own call.
        unsafe { call.make() };
        // They may have been moved again meanwhile.
        if call.result != -(libc::EFAULT as isize) || shared::moves() == moves {
            return;
        }
    }
}
