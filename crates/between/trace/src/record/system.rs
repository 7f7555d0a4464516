//! Raw system calls of the recording side: around the C library, so that
//! `errno` stays as the program left it and no wait is a cancellation point.
//! Async-signal-safe throughout.

use core::ptr::NonNull;
use sunder_guest::system::call;
pub use sunder_guest::system::{close, give_way, process_id, thread_id};

/// Fresh zeroed memory at a multiple of `alignment` (a power of two, at least a
/// page). A forked child finds it zeroed.
pub fn map(bytes: usize, alignment: usize) -> Option<NonNull<u8>> {
    let whole = bytes.checked_add(alignment)?;
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE) as usize;
    // SAFETY: a new mapping where the kernel likes; what is cut off again is
    // ours, and the advice is on our memory.
    unsafe {
        let start = call(libc::SYS_mmap, [0, whole, protection, flags, usize::MAX, 0]);
        let start = usize::try_from(start).ok().filter(|&s| s != 0)?;
        let aligned = start.next_multiple_of(alignment);
        let bytes = bytes.next_multiple_of(4096);
        for (from, to) in [(start, aligned), (aligned + bytes, start + whole)] {
            if from < to {
                call(libc::SYS_munmap, [from, to - from, 0, 0, 0, 0]);
            }
        }
        let advice = libc::MADV_WIPEONFORK as usize;
        call(libc::SYS_madvise, [aligned, bytes, advice, 0, 0, 0]);
        NonNull::new(aligned as *mut u8)
    }
}

/// Opens a file; `path` ends with a zero byte.
pub fn open(path: &[u8], flags: i32) -> Result<i32, u32> {
    if path.last() != Some(&0) {
        return Err(libc::EINVAL as u32);
    }
    let at = libc::AT_FDCWD as usize;
    let flags = (flags | libc::O_CLOEXEC) as usize;
    // SAFETY: the path was seen to end.
    let result = unsafe {
        call(
            libc::SYS_openat,
            [at, path.as_ptr() as usize, flags, 0o666, 0, 0],
        )
    };
    u32_result(result).map(|fd| fd as i32)
}

fn u32_result(result: isize) -> Result<u32, u32> {
    u32::try_from(result).map_err(|_| result.unsigned_abs() as u32)
}

/// Whether the file `name`, relative to `folder`, may be there to be executed:
/// not if the system says that it is missing or forbidden.
///
/// # Safety
/// `name` is a C string or null.
pub unsafe fn can_execute(folder: i32, name: *const core::ffi::c_char) -> bool {
    let (at, wanted) = (folder as usize, libc::X_OK as usize);
    // SAFETY: by this function's contract; null is an error like any other.
    let result = unsafe { call(libc::SYS_faccessat, [at, name as usize, wanted, 0, 0, 0]) };
    let refused = [
        libc::ENOENT,
        libc::EACCES,
        libc::ENOTDIR,
        libc::EFAULT,
        libc::EBADF,
    ];
    !refused.iter().any(|&error| result == -(error as isize))
}

/// The same file by a number of at least `least`, closed on exec.
pub fn duplicate(fd: i32, least: u64) -> Option<i32> {
    let command = libc::F_DUPFD_CLOEXEC as usize;
    // SAFETY: takes integers.
    let result = unsafe {
        call(
            libc::SYS_fcntl,
            [fd as usize, command, least as usize, 0, 0, 0],
        )
    };
    i32::try_from(result).ok().filter(|&fd| fd >= 0)
}

/// Takes the file's lock without waiting; whether it was free.
pub fn try_lock(fd: i32) -> bool {
    let how = (libc::LOCK_EX | libc::LOCK_NB) as usize;
    // SAFETY: takes integers.
    unsafe { call(libc::SYS_flock, [fd as usize, how, 0, 0, 0, 0]) == 0 }
}

/// Which file a descriptor is, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device and inode.
    pub file: (u64, u64),
    /// Bytes.
    pub size: u64,
    /// A regular file.
    pub regular: bool,
}

/// See [`Identity`].
pub fn identity(fd: i32) -> Option<Identity> {
    // SAFETY: plain data for which zeroes are valid, then a place for the answer.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let place = (&raw mut stat) as usize;
        (call(libc::SYS_fstat, [fd as usize, place, 0, 0, 0, 0]) == 0).then_some(Identity {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size.unsigned_abs(),
            regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
        })
    }
}

/// Writes all of `bytes` at `offset`.
///
/// # Errors
/// The system's error number. A part may have been written.
pub fn write_at(fd: i32, mut bytes: &[u8], mut offset: u64) -> Result<(), u32> {
    while !bytes.is_empty() {
        let (start, count) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the bytes are valid for their length.
        let result = unsafe {
            call(
                libc::SYS_pwrite64,
                [fd as usize, start, count, offset as usize, 0, 0],
            )
        };
        match u32_result(result) {
            Ok(0) => return Err(libc::EIO as u32),
            Ok(written) => {
                bytes = bytes.get(written as usize..).unwrap_or_default();
                offset += u64::from(written);
            }
            Err(error) if error == libc::EINTR as u32 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads from the start of a file; how many bytes came.
pub fn read(fd: i32, to: &mut [u8]) -> usize {
    let mut read = 0;
    while let Some(rest) = to.get_mut(read..).filter(|r| !r.is_empty()) {
        let (start, count) = (rest.as_mut_ptr() as usize, rest.len());
        // SAFETY: the place is valid for its length.
        let result = unsafe { call(libc::SYS_pread64, [fd as usize, start, count, read, 0, 0]) };
        match usize::try_from(result) {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    read
}

/// The target of a symbolic link; how many bytes came.
pub fn read_link(path: &[u8], to: &mut [u8]) -> usize {
    if path.last() != Some(&0) {
        return 0;
    }
    let at = libc::AT_FDCWD as usize;
    let (path, place) = (path.as_ptr() as usize, to.as_mut_ptr() as usize);
    // SAFETY: the path was seen to end; the place is valid for its length.
    let result = unsafe { call(libc::SYS_readlinkat, [at, path, place, to.len(), 0, 0]) };
    usize::try_from(result).unwrap_or(0)
}

/// The largest size that this process may give a file, and the highest number
/// that a descriptor may have.
pub fn limits() -> (u64, u64) {
    let soft = |what: u32| {
        let mut limit = libc::rlimit {
            rlim_cur: u64::MAX,
            rlim_max: u64::MAX,
        };
        let place = (&raw mut limit) as usize;
        // SAFETY: a place for the answer; nothing is set.
        unsafe { call(libc::SYS_prlimit64, [0, what as usize, 0, place, 0, 0]) };
        limit.rlim_cur
    };
    (soft(libc::RLIMIT_FSIZE), soft(libc::RLIMIT_NOFILE))
}

/// The processors that this process may run on.
pub fn processors() -> u32 {
    let mut mask = [0u64; 128];
    let (bytes, place) = (size_of_val(&mask), mask.as_mut_ptr() as usize);
    // SAFETY: a place for the answer.
    unsafe { call(libc::SYS_sched_getaffinity, [0, bytes, place, 0, 0, 0]) };
    mask.iter().map(|m| m.count_ones()).sum::<u32>().max(1)
}

/// Holds off all signals of the calling thread until dropped.
#[derive(Debug)]
pub struct NoSignals(u64);

impl NoSignals {
    /// From now on.
    pub fn hold() -> Self {
        let mut old = 0u64;
        set_mask(u64::MAX, &raw mut old);
        Self(old)
    }
}

impl Drop for NoSignals {
    fn drop(&mut self) {
        set_mask(self.0, core::ptr::null_mut());
    }
}

fn set_mask(new: u64, old: *mut u64) {
    let how = libc::SIG_SETMASK as usize;
    let place = (&raw const new) as usize;
    // SAFETY: both point to kernel signal sets of eight bytes, or are null.
    unsafe {
        call(
            libc::SYS_rt_sigprocmask,
            [how, place, old as usize, 8, 0, 0],
        )
    };
}

/// Nanoseconds on `clock`.
pub fn nanoseconds(clock: libc::clockid_t) -> u64 {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // The C library's function is async-signal-safe, sets no errno when it
    // succeeds and mostly needs no system call.
    // SAFETY: a place for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut now) };
    (now.tv_sec as u64)
        .wrapping_mul(1_000_000_000)
        .wrapping_add(now.tv_nsec as u64)
}
