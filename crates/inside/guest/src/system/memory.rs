//! System calls on mappings of the calling process. Contexts: all.

use super::call;
use core::ptr::NonNull;

/// The rights of ordinary memory.
pub const READ_WRITE: i32 = libc::PROT_READ | libc::PROT_WRITE;

/// As `mmap`: the address of the new mapping.
///
/// # Safety
/// Nothing uses the memory that a fixed mapping replaces.
pub unsafe fn map(
    at: usize,
    bytes: usize,
    rights: i32,
    flags: i32,
    fd: i32,
    offset: usize,
) -> isize {
    let (rights, flags, fd) = (rights as usize, flags as usize, fd as usize);
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_mmap, [at, bytes, rights, flags, fd, offset]) }
}

/// Maps new zeroed private memory at an address that the kernel chooses; `flags` are further flags
/// of `mmap`.
#[must_use]
pub fn map_anonymous(bytes: usize, rights: i32, flags: i32) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | flags;
    // SAFETY: a new mapping that replaces none.
    as_pointer(unsafe { map(0, bytes, rights, flags, -1, 0) })
}

/// Maps the first `bytes` bytes of `fd`, shared, at an address that the kernel chooses; `flags` are
/// further flags of `mmap`.
#[must_use]
pub fn map_shared(fd: i32, bytes: usize, flags: i32) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping that replaces none.
    as_pointer(unsafe { map(0, bytes, READ_WRITE, libc::MAP_SHARED | flags, fd, 0) })
}

fn as_pointer(result: isize) -> Option<NonNull<u8>> {
    (result > 0)
        .then(|| NonNull::new(result as *mut u8))
        .flatten()
}

/// As `munmap`.
///
/// # Safety
/// The range is not used any more.
pub unsafe fn unmap(at: usize, bytes: usize) -> isize {
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_munmap, [at, bytes, 0, 0, 0, 0]) }
}

/// As `mprotect`.
///
/// # Safety
/// Code that uses the pages expects or handles the faults of the new rights.
pub unsafe fn protect(at: usize, bytes: usize, rights: i32) -> isize {
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_mprotect, [at, bytes, rights as usize, 0, 0, 0]) }
}

/// As `madvise`.
///
/// # Safety
/// The advice may change the memory's contents only where they are not needed.
pub unsafe fn advise(at: usize, bytes: usize, advice: i32) -> isize {
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_madvise, [at, bytes, advice as usize, 0, 0, 0]) }
}

/// As `mremap`: returns the new address. `to` is used only with the flag `MREMAP_FIXED`.
///
/// # Safety
/// The old address is not used any more, and neither is the memory at a fixed new one.
pub unsafe fn remap(at: usize, old: usize, new: usize, flags: i32, to: usize) -> isize {
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_mremap, [at, old, new, flags as usize, to, 0]) }
}

/// As `mlock2`: keeps a range in memory; with `on_fault` only pages that are or become present.
pub fn lock(at: usize, bytes: usize, on_fault: bool) -> isize {
    // SAFETY: locking does not change contents.
    unsafe {
        call(
            libc::SYS_mlock2,
            [at, bytes, usize::from(on_fault), 0, 0, 0],
        )
    }
}

/// As `munlock`.
pub fn unlock(at: usize, bytes: usize) -> isize {
    // SAFETY: it does not change contents.
    unsafe { call(libc::SYS_munlock, [at, bytes, 0, 0, 0, 0]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_made_moved_and_given_back() {
        use sunder_access::PAGE_SIZE as PAGE;
        let start = map_anonymous(2 * PAGE, READ_WRITE, 0).expect("there is memory");
        let at = start.as_ptr() as usize;
        // SAFETY: two pages of our own, of which the first keeps its contents until it is unmapped.
        unsafe {
            start.write(7);
            assert_eq!(protect(at + PAGE, PAGE, libc::PROT_NONE), 0);
            assert_eq!(unmap(at + PAGE, PAGE), 0);
            let moved = remap(at, PAGE, 2 * PAGE, libc::MREMAP_MAYMOVE, 0);
            let moved = usize::try_from(moved).expect("it may move");
            assert_eq!((moved as *const u8).read(), 7);
            assert_eq!(advise(moved, PAGE, libc::MADV_DONTNEED), 0);
            assert_eq!((moved as *const u8).read(), 0);
            // Where the kernel puts nothing by itself: tests beside this one may get any other
            // memory as soon as it is unmapped.
            const ALONE: usize = 0x10_0000_0000;
            let how = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
            let moved = remap(moved, 2 * PAGE, 2 * PAGE, how, ALONE);
            assert_eq!(moved, ALONE as isize);
            assert_eq!(unmap(ALONE, 2 * PAGE), 0);
            let nothing = advise(ALONE, PAGE, libc::MADV_DONTNEED);
            assert_eq!(nothing, -(libc::ENOMEM as isize));
        }
        assert_eq!(map_anonymous(usize::MAX, READ_WRITE, 0), None);
        assert_eq!(map_shared(-1, PAGE, 0), None);
    }
}
