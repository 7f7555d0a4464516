//! Finds memory for trampolines near a module, within reach of its jumps. Contexts: all, while no
//! other thread runs.

use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;

/// Distance between the addresses that are tried, in bytes.
const STEP: usize = 1 << 20;
/// Farther away, a jump may not reach from one end of a module to the other end of the area.
const FARTHEST: usize = 1 << 30;
const NEW: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;

/// New zeroed pages of `bytes` within reach of all code from `start` to `end`.
pub fn near(start: usize, end: usize, bytes: usize) -> Option<usize> {
    if end.checked_sub(start)? > FARTHEST / 2 {
        return None;
    }
    let below = (1..FARTHEST / STEP).map_while(|i| start.checked_sub(bytes + i * STEP));
    let above = (1..FARTHEST / STEP).map_while(|i| end.checked_add(i * STEP));
    below.chain(above).find_map(|hint| {
        let wanted = hint & !(PAGE - 1);
        // SAFETY: a new mapping that replaces none.
        let got = unsafe { system::map(wanted, bytes, system::READ_WRITE, NEW, -1, 0) };
        if got > 0 && got as usize != wanted {
            // An old kernel took the address for a hint.
            // SAFETY: no code uses the new mapping yet.
            unsafe { give_back(got as usize, bytes) };
            return None;
        }
        (got > 0).then_some(wanted)
    })
}

/// # Safety
/// The memory, which [`near`] returned, is not used any more.
pub unsafe fn give_back(at: usize, bytes: usize) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { system::unmap(at, bytes) };
}
