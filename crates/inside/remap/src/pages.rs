//! Pages of the program and of areas: their rights, and where they lie. Addresses are numbers
//! of 64 bits here, as in the file that is shared with the tool. Contexts: all.

use sunder_guest::system;

/// As `mmap`: the address, or a negative error number.
///
/// # Safety
/// Nobody needs what a fixed mapping replaces.
pub unsafe fn map(at: u64, len: u64, rights: i32, flags: i32, fd: i32, offset: u64) -> isize {
    // SAFETY: by the caller.
    unsafe {
        system::map(
            at as usize,
            len as usize,
            rights,
            flags,
            fd,
            offset as usize,
        )
    }
}

/// Takes pages away.
///
/// # Safety
/// Nobody uses them any more.
pub unsafe fn unmap(at: u64, len: u64) {
    // SAFETY: by the caller.
    unsafe { system::unmap(at as usize, len as usize) };
}

/// Sets the rights of pages; whether that worked.
///
/// # Safety
/// Whoever uses them can bear the new rights.
pub unsafe fn protect(at: u64, len: u64, rights: i32) -> bool {
    // SAFETY: by the caller.
    unsafe { system::protect(at as usize, len as usize, rights) == 0 }
}

/// Moves pages over others; whether that worked. With `keep` the old place stays
/// mapped, without contents.
///
/// # Safety
/// Nobody minds that the pages at `to` are gone.
pub unsafe fn relocate(from: u64, len: u64, to: u64, keep: bool) -> bool {
    let keep = if keep { libc::MREMAP_DONTUNMAP } else { 0 };
    // SAFETY: by the caller.
    unsafe { move_to(from, len, len, to, keep) }
}

/// Maps the pages of a shared mapping at `from` once more at `to`; whether that worked.
///
/// # Safety
/// Nobody minds that the pages at `to` are gone.
pub unsafe fn duplicate(from: u64, len: u64, to: u64) -> bool {
    // No old length: the kernel then leaves the old mapping as it is.
    // SAFETY: by the caller.
    unsafe { move_to(from, 0, len, to, 0) }
}

/// # Safety
/// As [`relocate`].
unsafe fn move_to(from: u64, old: u64, new: u64, to: u64, flags: i32) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | flags;
    let (from, to) = (from as usize, to as usize);
    // SAFETY: by the caller.
    unsafe { system::remap(from, old as usize, new as usize, flags, to) == to as isize }
}
