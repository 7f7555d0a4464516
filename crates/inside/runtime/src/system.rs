//! Raw system calls. Contexts: all, including signal. They go around the C
//! library so that `errno` stays as the program left it.

use core::ptr::NonNull;
#[cfg(not(test))]
pub use sunder_kernel::read;
pub use sunder_kernel::{call, close, process_id, thread_id};

/// Fresh zeroed memory of our own.
pub fn map_anonymous(bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new private mapping where the kernel likes.
    let result = unsafe {
        call(
            libc::SYS_mmap,
            [
                0,
                bytes,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as usize,
                usize::MAX,
                0,
            ],
        )
    };
    (result > 0)
        .then(|| NonNull::new(result as *mut u8))
        .flatten()
}

/// Gives memory of our own back.
///
/// # Safety
/// The range came from [`map_anonymous`] and nobody uses it any more.
pub unsafe fn unmap(start: NonNull<u8>, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        call(
            libc::SYS_munmap,
            [start.as_ptr() as usize, bytes, 0, 0, 0, 0],
        )
    };
}

/// Maps the first `bytes` bytes of `fd`, shared.
pub fn map_shared(fd: i32, bytes: usize) -> Option<NonNull<u8>> {
    // SAFETY: a new mapping where the kernel likes.
    let result = unsafe {
        call(
            libc::SYS_mmap,
            [
                0,
                bytes,
                (libc::PROT_READ | libc::PROT_WRITE) as usize,
                (libc::MAP_SHARED | libc::MAP_NORESERVE) as usize,
                fd as usize,
                0,
            ],
        )
    };
    (result > 0)
        .then(|| NonNull::new(result as *mut u8))
        .flatten()
}

/// Advises the kernel on memory of our own; whether it took the advice.
///
/// # Safety
/// The range is ours, and nobody minds what the advice does to its contents.
pub unsafe fn advise(start: NonNull<u8>, bytes: usize, advice: i32) -> bool {
    // SAFETY: by this function's contract.
    let result = unsafe {
        call(
            libc::SYS_madvise,
            [start.as_ptr() as usize, bytes, advice as usize, 0, 0, 0],
        )
    };
    result == 0
}

/// Gives a shared range its pages at once: one system call instead of a page
/// fault each. False if there is no memory for them; a store there would be a
/// fatal signal. (`MADV_POPULATE_WRITE` is Linux 5.14; an older kernel does not
/// know it, and the pages come one by one.)
///
/// # Safety
/// The range is ours.
pub unsafe fn populate(start: NonNull<u8>, bytes: usize) -> bool {
    const POPULATE_WRITE: usize = 23;
    // SAFETY: by this function's contract; contents are kept.
    let result = unsafe {
        call(
            libc::SYS_madvise,
            [start.as_ptr() as usize, bytes, POPULATE_WRITE, 0, 0, 0],
        )
    };
    result == 0 || result == -(libc::EINVAL as isize)
}

/// Opens an existing file for reading and writing.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
pub unsafe fn open(path: *const u8) -> Option<i32> {
    // SAFETY: by this function's contract.
    unsafe { open_for(path, libc::O_RDWR) }
}

/// Opens an existing file for reading.
///
/// # Safety
/// As [`open`].
#[cfg(not(test))]
pub unsafe fn open_to_read(path: *const u8) -> Option<i32> {
    // SAFETY: by this function's contract.
    unsafe { open_for(path, libc::O_RDONLY) }
}

/// Opens an existing file for reading, from the folder `folder`.
///
/// # Safety
/// As [`open`].
#[cfg(not(test))]
pub unsafe fn open_at(folder: i32, path: *const u8) -> Option<i32> {
    // SAFETY: by this function's contract.
    unsafe { sunder_kernel::open(folder, path, libc::O_RDONLY | libc::O_NONBLOCK) }
}

/// # Safety
/// As [`open`].
unsafe fn open_for(path: *const u8, mode: i32) -> Option<i32> {
    // SAFETY: by this function's contract.
    unsafe { sunder_kernel::open(libc::AT_FDCWD, path, mode) }
}

/// Reads from the start of `fd`; whether all of `bytes` was filled.
pub fn read_start(fd: i32, bytes: &mut [u8]) -> bool {
    // SAFETY: the buffer is valid for its length.
    let result = unsafe {
        call(
            libc::SYS_pread64,
            [
                fd as usize,
                bytes.as_mut_ptr() as usize,
                bytes.len(),
                0,
                0,
                0,
            ],
        )
    };
    result == bytes.len() as isize
}

/// Locks a range in memory, as `mlock2`; 0 or an error number.
#[cfg(not(test))]
pub fn lock(start: usize, bytes: usize, on_fault: bool) -> i32 {
    let flags = usize::from(on_fault);
    // SAFETY: locking changes no contents.
    let result = unsafe { call(libc::SYS_mlock2, [start, bytes, flags, 0, 0, 0]) };
    -(result as i32)
}

/// The calling thread's pointer (`fs` base).
pub fn thread_pointer() -> u64 {
    sunder_kernel::thread_pointer() as u64
}

/// Nanoseconds on `clock`.
pub fn clock(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The C library's function needs no system call for the monotonic clock,
    // sets no errno when it succeeds, and is async-signal-safe.
    // SAFETY: `now` is a valid place for the result.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}

/// The number of the calling process's parent.
pub fn parent_id() -> u32 {
    // SAFETY: no arguments.
    unsafe { call(libc::SYS_getppid, [0; 6]) as u32 }
}

/// The number of the calling process as `/proc` has it, which is that of the
/// namespace it was mounted for.
pub fn process_in_proc() -> Option<u32> {
    let mut name = [0u8; 12];
    // SAFETY: the path is a C string, and the buffer valid for its length.
    let result = unsafe {
        call(
            libc::SYS_readlinkat,
            [
                libc::AT_FDCWD as usize,
                c"/proc/self".as_ptr() as usize,
                name.as_mut_ptr() as usize,
                name.len(),
                0,
                0,
            ],
        )
    };
    let digits = name.get(..usize::try_from(result).ok()?)?;
    digits.iter().try_fold(0u32, |number, &digit| {
        let digit = (digit as char).to_digit(10)?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

/// Reads from `fd` at `offset`; how many bytes, 0 at the end or on an error.
#[cfg(not(test))]
pub fn read_at(fd: i32, bytes: &mut [u8], offset: u64) -> usize {
    // SAFETY: the buffer is valid for its length.
    let result = unsafe {
        call(
            libc::SYS_pread64,
            [
                fd as usize,
                bytes.as_mut_ptr() as usize,
                bytes.len(),
                offset as usize,
                0,
                0,
            ],
        )
    };
    usize::try_from(result).unwrap_or(0)
}

/// Whether this process may execute the file.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
#[cfg(not(test))]
pub unsafe fn is_executable(path: *const u8) -> bool {
    let folder = libc::AT_FDCWD as usize;
    // SAFETY: by this function's contract.
    let result = unsafe {
        call(
            libc::SYS_faccessat,
            [folder, path as usize, libc::X_OK as usize, 0, 0, 0],
        )
    };
    result == 0
}
