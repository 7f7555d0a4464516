//! The allocator's calls of the kernel for memory. Contexts: all in which a program may allocate.

use sunder_guest::system::{self, READ_WRITE};

fn map(bytes: usize, rights: i32) -> Option<usize> {
    let memory = system::map_anonymous(bytes, rights, libc::MAP_NORESERVE)?;
    Some(memory.as_ptr() as usize)
}

/// Maps new zeroed memory.
pub fn take(bytes: usize) -> Option<usize> {
    map(bytes, READ_WRITE)
}

/// Reserves address space without memory.
pub fn reserve(bytes: usize) -> Option<usize> {
    map(bytes, libc::PROT_NONE)
}

/// Makes reserved address space usable; returns whether the kernel accepted.
///
/// # Safety
/// The range is this allocator's reservation.
pub unsafe fn commit(start: usize, bytes: usize) -> bool {
    // SAFETY: by this function's contract.
    unsafe { system::protect(start, bytes, READ_WRITE) == 0 }
}

/// Returns the memory to the system and keeps the address space, which reads as zero again. False
/// if the kernel refused (locked memory).
///
/// # Safety
/// The range belongs to this allocator and its contents are not needed.
pub unsafe fn discard(start: usize, bytes: usize) -> bool {
    // SAFETY: by this function's contract.
    unsafe { system::advise(start, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Unmaps a range, which may be empty.
///
/// # Safety
/// The range belongs to this allocator and is not in use.
pub unsafe fn give_back(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: by this function's contract.
        unsafe { system::unmap(start, bytes) };
    }
}

/// Grows or shrinks a mapping, which may move.
///
/// # Safety
/// The mapping belongs to this allocator, and no copy of its old address is used any more.
pub unsafe fn resize(start: usize, old: usize, new: usize) -> Option<usize> {
    // SAFETY: by this function's contract.
    let result = unsafe { system::remap(start, old, new, libc::MREMAP_MAYMOVE, 0) };
    (result > 0).then_some(result as usize)
}
