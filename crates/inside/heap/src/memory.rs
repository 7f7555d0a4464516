//! The memory that the allocator takes from the kernel. Contexts: all in which a program
//! may allocate.

use sunder_guest::system::{self, READ_WRITE};

fn map(bytes: usize, rights: i32) -> Option<usize> {
    let memory = system::map_anonymous(bytes, rights, libc::MAP_NORESERVE)?;
    Some(memory.as_ptr() as usize)
}

/// Fresh zeroed memory.
pub fn take(bytes: usize) -> Option<usize> {
    map(bytes, READ_WRITE)
}

/// Address space without memory.
pub fn reserve(bytes: usize) -> Option<usize> {
    map(bytes, libc::PROT_NONE)
}

/// Makes reserved address space usable; whether the kernel agreed.
///
/// # Safety
/// The range is ours.
pub unsafe fn commit(start: usize, bytes: usize) -> bool {
    // SAFETY: by this function's contract.
    unsafe { system::protect(start, bytes, READ_WRITE) == 0 }
}

/// Gives the memory back and keeps the address space: it reads as zero again.
/// False if the kernel refused (locked memory).
///
/// # Safety
/// The range is ours and nobody needs what it holds.
pub unsafe fn discard(start: usize, bytes: usize) -> bool {
    // SAFETY: by this function's contract.
    unsafe { system::advise(start, bytes, libc::MADV_DONTNEED) == 0 }
}

/// Gives a mapping back, which may be empty.
///
/// # Safety
/// The range is ours and nobody uses it.
pub unsafe fn give_back(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: by this function's contract.
        unsafe { system::unmap(start, bytes) };
    }
}

/// Grows or shrinks a mapping, which may move.
///
/// # Safety
/// The mapping is ours, and nobody keeps its old address.
pub unsafe fn resize(start: usize, old: usize, new: usize) -> Option<usize> {
    // SAFETY: by this function's contract.
    let result = unsafe { system::remap(start, old, new, libc::MREMAP_MAYMOVE, 0) };
    (result > 0).then_some(result as usize)
}
