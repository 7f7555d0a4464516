//! Files and descriptors. Contexts: all.

use super::call;

/// As `openat`, closed on exec: the descriptor. `path` is taken from the folder `folder` or,
/// with `AT_FDCWD`, from the working folder; a file that is created may be read and written
/// by everybody whom the process's mask does not exclude.
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

/// Opens a file as [`open_at`]; none if that fails.
///
/// # Safety
/// As [`open_at`].
#[must_use]
pub unsafe fn open(folder: i32, path: *const u8, flags: i32) -> Option<i32> {
    // SAFETY: by this function's contract.
    let result = unsafe { open_at(folder, path, flags) };
    (result >= 0).then_some(result as i32)
}

/// Closes a descriptor of the caller's own.
pub fn close(fd: i32) {
    // SAFETY: takes one integer; the callers pass what [`open`] gave them.
    unsafe { call(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// The same file by a number of at least `least`, closed on exec.
#[must_use]
pub fn duplicate(fd: i32, least: usize) -> Option<i32> {
    let command = libc::F_DUPFD_CLOEXEC as usize;
    // SAFETY: takes integers.
    let result = unsafe { call(libc::SYS_fcntl, [fd as usize, command, least, 0, 0, 0]) };
    (result >= 0).then_some(result as i32)
}

/// As `read`: how many bytes, 0 at the end.
pub fn read(fd: i32, bytes: &mut [u8]) -> isize {
    let (at, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_read, [fd as usize, at, len, 0, 0, 0]) }
}

/// As `pread64`: how many bytes from `offset` on, 0 at the end.
pub fn read_at(fd: i32, bytes: &mut [u8], offset: u64) -> isize {
    let (at, len) = (bytes.as_mut_ptr() as usize, bytes.len());
    let arguments = [fd as usize, at, len, offset as usize, 0, 0];
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_pread64, arguments) }
}

/// As `write`: how many bytes were taken.
pub fn write(fd: i32, bytes: &[u8]) -> isize {
    let (at, len) = (bytes.as_ptr() as usize, bytes.len());
    // SAFETY: the buffer is valid for its length.
    unsafe { call(libc::SYS_write, [fd as usize, at, len, 0, 0, 0]) }
}

/// As `pwrite64`: how many bytes were taken from `at`.
///
/// # Safety
/// So many bytes can be read there, or the kernel's error is expected; what the file is can
/// bear them (memory is a file too).
pub unsafe fn write_at(fd: i32, at: usize, bytes: usize, offset: u64) -> isize {
    let arguments = [fd as usize, at, bytes, offset as usize, 0, 0];
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_pwrite64, arguments) }
}

/// Writes to a descriptor, as far as that goes.
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

/// The target of a symbolic link: how many bytes came, 0 if there is none.
pub fn read_link(path: &core::ffi::CStr, to: &mut [u8]) -> usize {
    let here = libc::AT_FDCWD as usize;
    let (path, place) = (path.as_ptr() as usize, to.as_mut_ptr() as usize);
    // SAFETY: a C string; the place is valid for its length.
    let result = unsafe { call(libc::SYS_readlinkat, [here, path, place, to.len(), 0, 0]) };
    usize::try_from(result).unwrap_or(0)
}

/// As `faccessat`: 0 if the file `path`, relative to `folder`, may be executed.
///
/// # Safety
/// `path` points to a string that ends with a zero byte, or is null, which is an error like
/// any other.
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

/// Gives back what a file holds in a range, which reads as zero then: 0 if that worked. Its
/// size stays.
///
/// # Safety
/// Nobody needs what is there, in the file or where it is mapped.
pub unsafe fn punch_hole(fd: i32, offset: usize, bytes: usize) -> isize {
    let how = (libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE) as usize;
    // SAFETY: by this function's contract.
    unsafe { call(libc::SYS_fallocate, [fd as usize, how, offset, bytes, 0, 0]) }
}

/// Takes the file's lock without waiting; whether it was free.
#[must_use]
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
#[must_use]
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

/// The soft limit of a resource of this process (`RLIMIT_…`); all ones if there is none.
#[must_use]
pub fn limit(resource: u32) -> u64 {
    let mut limit = [u64::MAX; 2];
    let place = limit.as_mut_ptr() as usize;
    // SAFETY: a place for both limits; nothing is set.
    unsafe { call(libc::SYS_prlimit64, [0, resource as usize, 0, place, 0, 0]) };
    let [soft, _] = limit;
    soft
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_its_end() {
        // SAFETY: a string that ends.
        let none = unsafe { open(libc::AT_FDCWD, c"/nowhere".as_ptr().cast(), libc::O_RDONLY) };
        assert_eq!(none, None);
        let path = c"/proc/self/comm".as_ptr().cast();
        // SAFETY: a string that ends.
        let fd = unsafe { open(libc::AT_FDCWD, path, libc::O_RDONLY) }.expect("Linux has it");
        // SAFETY: takes integers.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        let mut bytes = [0; 64];
        assert!(read(fd, &mut bytes) > 1);
        assert_eq!(read(fd, &mut bytes), 0, "it was at its end");
        assert!(read_at(fd, &mut bytes, 0) > 1, "but can be read again");
        close(fd);
        let closed = read(fd, &mut bytes);
        assert_eq!(closed, -(libc::EBADF as isize), "it is closed");
    }

    #[test]
    fn the_limit_is_that_of_the_c_library() {
        let mut limit = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: a place for the answer.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
        assert_eq!(super::limit(libc::RLIMIT_NOFILE), limit.rlim_cur);
        assert_eq!(super::limit(u32::MAX), u64::MAX, "there is no such limit");
    }
}
