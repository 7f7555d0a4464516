//! Files and descriptors. Contexts: all.

use super::call;

/// As `openat`, closed on exec; returns the descriptor. `path` is relative to `folder` or, with
/// `AT_FDCWD`, to the working folder. A file that is created is readable and writable by all users
/// that the process's `umask` does not exclude.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
#[must_use]
pub unsafe fn open_at(folder: i32, path: *const u8, flags: i32) -> isize {
    let mode = if flags & libc::O_CREAT == 0 { 0 } else { 0o666 };
    let flags = (flags | libc::O_CLOEXEC) as usize;
    let arguments = [folder as usize, path as usize, flags, mode, 0, 0];
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_openat, arguments) }
}

/// Opens a file as [`open_at`]; `None` if that fails.
///
/// # Safety
/// As [`open_at`].
#[must_use]
pub unsafe fn open(folder: i32, path: *const u8, flags: i32) -> Option<i32> {
    // SAFETY: by this function's contract.
    let result = unsafe { open_at(folder, path, flags) };
    (result >= 0).then_some(result as i32)
}

/// Closes a descriptor that the caller owns.
pub fn close(fd: i32) {
    // SAFETY: the call takes a number; callers pass a descriptor that [`open`] returned.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// Duplicates a descriptor to a number of at least `least`, closed on exec.
#[must_use]
pub fn duplicate(fd: i32, least: usize) -> Option<i32> {
    let command = libc::F_DUPFD_CLOEXEC as usize;
    // SAFETY: the call takes numbers.
    let result = unsafe { call(libc::SYS_fcntl, [fd as usize, command, least, 0, 0, 0]) };
    (result >= 0).then_some(result as i32)
}

/// As `read`: the number of bytes, 0 at the end.
pub fn read(fd: i32, bytes: &mut [u8]) -> isize {
    let (at, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_read, [fd as usize, at, len, 0, 0, 0]) }
}

/// As `pread64`: the number of bytes from `offset` on, 0 at the end.
pub fn read_at(fd: i32, bytes: &mut [u8], offset: u64) -> isize {
    let (at, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    let arguments = [fd as usize, at, len, offset as usize, 0, 0];
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_pread64, arguments) }
}

/// As `write`: the number of bytes written.
pub fn write(fd: i32, bytes: &[u8]) -> isize {
    let (at, len) = (bytes.as_ptr() as usize, bytes.len());
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_write, [fd as usize, at, len, 0, 0, 0]) }
}

/// As `pwrite64`: the number of bytes written from `at`.
///
/// # Safety
/// So many bytes are readable there, or the kernel's error is expected. The file may be memory
/// (`/proc/PID/mem`); then the caller may write those addresses.
pub unsafe fn write_at(fd: i32, at: usize, bytes: usize, offset: u64) -> isize {
    let arguments = [fd as usize, at, bytes, offset as usize, 0, 0];
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_pwrite64, arguments) }
}

/// Writes to a descriptor until all is written or an error occurs.
pub fn write_all(fd: i32, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let done = write(fd, rest);
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

/// Writes all of `bytes` at `offset` of a file.
///
/// # Errors
/// The system's error number. A part may have been written.
pub fn write_all_at(fd: i32, mut bytes: &[u8], mut offset: u64) -> Result<(), u32> {
    while !bytes.is_empty() {
        // SAFETY: the bytes are valid for their length; the file is the caller's.
        let result = unsafe { write_at(fd, bytes.as_ptr() as usize, bytes.len(), offset) };
        match super::outcome(result) {
            Ok(0) => return Err(libc::EIO as u32),
            Ok(written) => {
                bytes = bytes.get(written..).unwrap_or_default();
                offset += written as u64;
            }
            Err(error) if error == libc::EINTR as u32 => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The target of a symbolic link: the number of bytes, 0 if there is none.
pub fn read_link(path: &core::ffi::CStr, to: &mut [u8]) -> usize {
    let here = libc::AT_FDCWD as usize;
    let (path, at) = (path.as_ptr() as usize, to.as_mut_ptr() as usize);
    // SAFETY: a C string; the buffer is valid for its length.
    let result = unsafe { call(libc::SYS_readlinkat, [here, path, at, to.len(), 0, 0]) };
    usize::try_from(result).unwrap_or(0)
}

/// As `faccessat`: 0 if the file `path`, relative to `folder`, may be executed.
///
/// # Safety
/// `path` points to a string that ends with a zero byte, or is null, for which the kernel returns
/// an error.
#[must_use]
pub unsafe fn may_execute(folder: i32, path: *const u8) -> isize {
    let (folder, wanted) = (folder as usize, libc::X_OK as usize);
    // SAFETY: by this function's contract.
    unsafe {
        call(
            libc::SYS_faccessat,
            [folder, path as usize, wanted, 0, 0, 0],
        )
    }
}

/// Frees a range of a file, which then reads as zeroes; 0 if that worked. The file's size does not
/// change.
///
/// # Safety
/// The contents are not needed, in the file or where it is mapped.
pub unsafe fn punch_hole(fd: i32, offset: usize, bytes: usize) -> isize {
    let how = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as usize;
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_fallocate, [fd as usize, how, offset, bytes, 0, 0]) }
}

/// Takes the file's lock without waiting; returns whether it was free.
#[must_use]
pub fn try_lock(fd: i32) -> bool {
    let how = (libc::LOCK_EX | libc::LOCK_NB) as usize;
    // SAFETY: the call takes numbers.
    unsafe { call(libc::SYS_flock, [fd as usize, how, 0, 0, 0, 0]) == 0 }
}

/// The file of a descriptor, and its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device and inode.
    pub file: (u64, u64),
    /// Size in bytes.
    pub size: u64,
    /// Whether it is a regular file.
    pub regular: bool,
}

/// The [`Identity`] of a descriptor's file; `None` if that can't be read.
#[must_use]
pub fn identity(fd: i32) -> Option<Identity> {
    // SAFETY: plain data, for which zeroes are valid, and a local for the result.
    unsafe {
        let mut stat: libc::stat = core::mem::zeroed();
        let at = (&raw mut stat) as usize;
        (call(libc::SYS_fstat, [fd as usize, at, 0, 0, 0, 0]) == 0).then_some(Identity {
            file: (stat.st_dev, stat.st_ino),
            size: stat.st_size.unsigned_abs(),
            regular: stat.st_mode & libc::S_IFMT == libc::S_IFREG,
        })
    }
}

/// The soft limit of a resource of this process (`RLIMIT_…`); all bits set if there is none.
#[must_use]
pub fn limit(resource: u32) -> u64 {
    let mut limit = [u64::MAX; 2];
    let at = limit.as_mut_ptr() as usize;
    // SAFETY: a local with room for both limits; none is set.
    unsafe { call(libc::SYS_prlimit64, [0, resource as usize, 0, at, 0, 0]) };
    let [soft, _] = limit;
    soft
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_end() {
        // SAFETY: a C string.
        let none = unsafe { open(libc::AT_FDCWD, c"/nowhere".as_ptr().cast(), libc::O_RDONLY) };
        assert_eq!(none, None);
        let path = c"/proc/self/comm".as_ptr().cast();
        // SAFETY: a C string.
        let fd = unsafe { open(libc::AT_FDCWD, path, libc::O_RDONLY) }.expect("Linux has it");
        // SAFETY: the call takes numbers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        let mut bytes = [0; 64];
        assert!(read(fd, &mut bytes) > 1);
        assert_eq!(read(fd, &mut bytes), 0, "it was at its end");
        assert!(read_at(fd, &mut bytes, 0) > 1, "but can be read again");
        close(fd);
    }

    #[test]
    fn a_closed_file_is_not_read() {
        // SAFETY: a C string.
        let fd = unsafe {
            open(
                libc::AT_FDCWD,
                c"/proc/self/comm".as_ptr().cast(),
                libc::O_RDONLY,
            )
        };
        let fd = fd.expect("Linux has it");
        // Other tests run beside this one, and the kernel gives them the lowest free number.
        const HIGH: i32 = 200;
        // SAFETY: the call takes numbers.
        let high = unsafe { libc::fcntl(fd, libc::F_DUPFD_CLOEXEC, HIGH) };
        assert!(high >= HIGH);
        close(fd);
        close(high);
        let closed = read(high, &mut [0; 64]);
        assert_eq!(closed, -(libc::EBADF as isize));
    }

    #[test]
    fn the_limit_is_that_of_the_c_library() {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: the result is a local.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        assert_eq!(super::limit(libc::RLIMIT_NOFILE), limit.rlim_cur);
        assert_eq!(super::limit(u32::MAX), u64::MAX, "there is no such limit");
    }
}
