//! Memory for trampolines, so near to a module that jumps reach it. Contexts: all, while
//! no other thread runs.

use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;

/// Distances that are tried, in bytes.
const STEP: usize = 1 << 20;
/// Beyond this a jump may not reach from one end of a module to the other of the area.
const FARTHEST: usize = 1 << 30;
const NEW: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;

/// Fresh zeroed pages of `bytes` within reach of all code from `start` to `end`.
pub fn near(start: usize, end: usize, bytes: usize) -> Option<usize> {
    if end.checked_sub(start)? > FARTHEST / 2 {
        return None;
    }
    let below = (1..FARTHEST / STEP).map_while(|i| start.checked_sub(bytes + i * STEP));
    let above = (1..FARTHEST / STEP).map_while(|i| end.checked_add(i * STEP));
    below.chain(above).find_map(|hint| {
        let wanted = hint & !(PAGE - 1);
        // SAFETY: new memory where nothing is.
        let got = unsafe { system::map(wanted, bytes, system::READ_WRITE, NEW, -1, 0) };
        if got > 0 && got as usize != wanted {
            // An old kernel took the address for a hint.
            // SAFETY: nobody knows of it yet.
            unsafe { give_back(got as usize, bytes) };
            return None;
        }
        (got > 0).then_some(wanted)
    })
}

/// # Safety
/// Nobody uses what [`near`] gave any more.
pub unsafe fn give_back(at: usize, bytes: usize) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { system::unmap(at, bytes) };
}
