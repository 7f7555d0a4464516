//! System calls on pages of the program and of areas: their access rights and addresses. Addresses
//! are 64-bit numbers here, as in the file that the tool shares.
//!
//! Contexts: all.

use sunder_guest::system;

/// As `mmap`: the address, or a negative error number.
///
/// # Safety
/// Nothing uses the memory that a fixed mapping replaces.
pub unsafe fn map(at: u64, len: u64, rights: i32, flags: i32, fd: i32, offset: u64) -> isize {
    // SAFETY: the caller upholds this function's contract.
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

/// Unmaps pages.
///
/// # Safety
/// Nothing uses them any more.
pub unsafe fn unmap(at: u64, len: u64) {
    // SAFETY: the caller upholds this function's contract.
    unsafe { system::unmap(at as usize, len as usize) };
}

/// Sets the access rights of pages; returns whether that worked.
///
/// # Safety
/// Code that uses them expects or handles the faults of the new rights.
pub unsafe fn protect(at: u64, len: u64, rights: i32) -> bool {
    // SAFETY: the caller upholds this function's contract.
    unsafe { system::protect(at as usize, len as usize, rights) == 0 }
}

/// Moves pages over others; returns whether that worked. With `keep` the old place stays mapped,
/// without contents.
///
/// # Safety
/// Nothing needs the pages at `to`.
pub unsafe fn relocate(from: u64, len: u64, to: u64, keep: bool) -> bool {
    let keep = if keep { libc::MREMAP_DONTUNMAP } else { 0 };
    // SAFETY: the caller upholds this function's contract.
    unsafe { move_to(from, len, len, to, keep) }
}

/// Maps the pages of a shared mapping at `from` a second time at `to`; returns whether that worked.
///
/// # Safety
/// Nothing needs the pages at `to`.
pub unsafe fn duplicate(from: u64, len: u64, to: u64) -> bool {
    // With an old length of 0 the kernel keeps the old mapping.
    // SAFETY: the caller upholds this function's contract.
    unsafe { move_to(from, 0, len, to, 0) }
}

/// # Safety
/// As [`relocate`].
unsafe fn move_to(from: u64, old: u64, new: u64, to: u64, flags: i32) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | flags;
    let (from, to) = (from as usize, to as usize);
    // SAFETY: the caller upholds this function's contract.
    unsafe { system::remap(from, old as usize, new as usize, flags, to) == to as isize }
}

/// Whether memory with these rights can be executed.
pub const fn is_code(rights: u64) -> bool {
    rights & libc::PROT_EXEC as u64 != 0
}
