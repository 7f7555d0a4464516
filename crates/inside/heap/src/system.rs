//! Raw system calls: `errno` stays as the program left it. The one place that
//! talks to the kernel.

use core::sync::atomic::AtomicU32;
use sunder_kernel::{Reach, call};
pub use sunder_kernel::{close, read};

const READ_WRITE: usize = (libc::PROT_READ | libc::PROT_WRITE) as usize;

fn map(bytes: usize, protection: usize) -> Option<usize> {
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new mapping where the kernel likes.
    let result = unsafe { call(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) };
    (result > 0).then_some(result as usize)
}

/// Fresh zeroed memory.
pub fn map_memory(bytes: usize) -> Option<usize> {
    map(bytes, READ_WRITE)
}

/// Address space without memory.
pub fn reserve(bytes: usize) -> Option<usize> {
    map(bytes, libc::PROT_NONE as usize)
}

/// Makes reserved address space usable; whether the kernel agreed.
///
/// # Safety
/// The range is ours.
pub unsafe fn commit(start: usize, bytes: usize) -> bool {
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_mprotect, [start, bytes, READ_WRITE, 0, 0, 0]) == 0 }
}

/// Gives the memory back and keeps the address space: it reads as zero again.
/// False if the kernel refused (locked memory).
///
/// # Safety
/// The range is ours and nobody needs what it holds.
pub unsafe fn discard(start: usize, bytes: usize) -> bool {
    let advice = libc::MADV_DONTNEED as usize;
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_madvise, [start, bytes, advice, 0, 0, 0]) == 0 }
}

/// Gives a mapping back.
///
/// # Safety
/// The range is ours and nobody uses it.
pub unsafe fn unmap(start: usize, bytes: usize) {
    if bytes > 0 {
        // SAFETY: by this function's contract.
        unsafe { call(libc::SYS_munmap, [start, bytes, 0, 0, 0, 0]) };
    }
}

/// Grows or shrinks a mapping, which may move.
///
/// # Safety
/// The mapping is ours, and nobody keeps its old address.
pub unsafe fn remap(start: usize, old: usize, new: usize) -> Option<usize> {
    let may_move = libc::MREMAP_MAYMOVE as usize;
    // SAFETY: by this function's contract.
    let result = unsafe { call(libc::SYS_mremap, [start, old, new, may_move, 0, 0]) };
    (result > 0).then_some(result as usize)
}

/// Waits while `*word` is `value`; may come back for no reason.
pub fn wait(word: &AtomicU32, value: u32) {
    sunder_kernel::wait(word, value, None, Reach::Process);
}

/// Wakes one thread that waits on `word`.
pub fn wake(word: &AtomicU32) {
    sunder_kernel::wake(word, 1, Reach::Process);
}

/// Writes to a descriptor, as far as that goes.
pub fn write(fd: i32, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        // SAFETY: the slice is valid for its length.
        let done = unsafe {
            call(
                libc::SYS_write,
                [fd as usize, rest.as_ptr() as usize, rest.len(), 0, 0, 0],
            )
        };
        if done == -(libc::EINTR as isize) {
            continue;
        }
        rest = usize::try_from(done)
            .ok()
            .filter(|&n| n > 0)
            .and_then(|n| rest.get(n..))
            .unwrap_or_default();
    }
}

/// Opens a file for reading.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
pub unsafe fn open(path: *const u8) -> Option<i32> {
    // SAFETY: by this function's contract.
    unsafe { sunder_kernel::open(libc::AT_FDCWD, path, libc::O_RDONLY) }
}

/// The soft limit of address space, if there is one.
pub fn address_limit() -> Option<usize> {
    let mut limit = [0u64; 2];
    let resource = libc::RLIMIT_AS as usize;
    // SAFETY: `limit` is a valid place for a `struct rlimit64`.
    unsafe {
        call(
            libc::SYS_prlimit64,
            [0, resource, 0, limit.as_mut_ptr() as usize, 0, 0],
        )
    };
    let [soft, _] = limit;
    (soft != 0 && soft != u64::MAX).then_some(soft as usize)
}
