//! Maps the recorder's own memory. Contexts: all.

use core::ptr::NonNull;
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::system;

/// Maps zeroed memory at a multiple of `alignment` (a power of two, at least a page). It is zeroed
/// again in a forked child.
pub fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
    let whole = bytes.checked_add(alignment)?;
    let start = system::map_anonymous(whole, system::READ_WRITE, libc::MAP_NORESERVE)?;
    let start = start.as_ptr() as usize;
    let aligned = start.next_multiple_of(alignment);
    let bytes = bytes.next_multiple_of(PAGE);
    // SAFETY: the parts that are unmapped belong to our new mapping, and the advice is for our own
    // memory.
    unsafe {
        for (from, to) in [(start, aligned), (aligned + bytes, start + whole)] {
            if from < to {
                system::unmap(from, to - from);
            }
        }
        system::advise(aligned, bytes, libc::MADV_WIPEONFORK);
    }
    NonNull::new(aligned as *mut u8)
}
