//! System calls without the C library: no `errno`, no cancellation, no hooks.
//! Contexts: all.

use core::sync::atomic::AtomicU32;
use sunder_kernel::Reach;
pub use sunder_kernel::{
    call, close, give_way as pause, now, process_id as process, thread_id as thread,
};

/// # Safety
/// As `mmap`.
pub unsafe fn map(at: u64, len: u64, rights: i32, flags: i32, fd: i32, offset: u64) -> isize {
    // SAFETY: by the caller.
    unsafe {
        call(
            libc::SYS_mmap,
            [
                at as usize,
                len as usize,
                rights as usize,
                flags as usize,
                fd as usize,
                offset as usize,
            ],
        )
    }
}

/// # Safety
/// As `munmap`.
pub unsafe fn unmap(at: u64, len: u64) {
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_munmap, [at as usize, len as usize, 0, 0, 0, 0]) };
}

/// Sets the rights of pages; whether that worked.
///
/// # Safety
/// Whoever uses them can bear the new rights.
pub unsafe fn protect(at: u64, len: u64, rights: i32) -> bool {
    let arguments = [at as usize, len as usize, rights as usize, 0, 0, 0];
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_mprotect, arguments) == 0 }
}

/// Moves pages over others; whether that worked. With `keep` the old place stays
/// mapped, without contents.
///
/// # Safety
/// Nobody minds that the pages at `to` are gone.
pub unsafe fn relocate(from: u64, len: u64, to: u64, keep: bool) -> bool {
    const DONTUNMAP: i32 = 4;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | if keep { DONTUNMAP } else { 0 };
    let arguments = [
        from as usize,
        len as usize,
        len as usize,
        flags as usize,
        to as usize,
        0,
    ];
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_mremap, arguments) == to as isize }
}

/// Maps the pages of a shared mapping at `from` once more at `to`; whether that worked.
///
/// # Safety
/// Nobody minds that the pages at `to` are gone.
pub unsafe fn duplicate(from: u64, len: u64, to: u64) -> bool {
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
    // No old length: the kernel then leaves the old mapping as it is.
    let arguments = [
        from as usize,
        0,
        len as usize,
        flags as usize,
        to as usize,
        0,
    ];
    // SAFETY: by the caller.
    unsafe { call(libc::SYS_mremap, arguments) == to as isize }
}

/// Waits until `word` is no longer `value` or the time is over. With `shared` also
/// for another process.
pub fn wait(word: &AtomicU32, value: u32, nanoseconds: u32, shared: bool) {
    let reach = if shared { Reach::All } else { Reach::Process };
    sunder_kernel::wait(word, value, Some(nanoseconds.into()), reach);
}

/// Wakes all who wait for `word`, in all processes.
pub fn wake(word: &AtomicU32) {
    sunder_kernel::wake(word, i32::MAX, Reach::All);
}

/// Opens a file for reading and writing.
///
/// # Safety
/// `path` is a C string.
pub unsafe fn open(path: *const u8) -> Option<i32> {
    // SAFETY: by the caller.
    unsafe { sunder_kernel::open(libc::AT_FDCWD, path, libc::O_RDWR) }
}

/// Bytes of an open file.
pub fn size(fd: i32) -> u64 {
    // SAFETY: plain data, for which zeroes are valid.
    let mut about: libc::stat = unsafe { core::mem::zeroed() };
    let arguments = [fd as usize, &raw mut about as usize, 0, 0, 0, 0];
    // SAFETY: a valid place for the result.
    let result = unsafe { call(libc::SYS_fstat, arguments) };
    if result == 0 { about.st_size as u64 } else { 0 }
}
