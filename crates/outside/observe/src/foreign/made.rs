//! The memory file that a process has made for us, by the number of its descriptor. Called by
//! `repair`, which lets a stopped thread make the file; it must not open anything else.
//!
//! The number proves nothing: a process that shares the table of descriptors is not stopped, and
//! may have put another file there, which the program may not write. So the file itself is taken
//! over, with the rights with which the program has opened it, and it is believed only if it is of
//! the kind that was made.

use crate::proc;
use rustix::fs::{
    CWD, FileType, Mode, OFlags, SealFlags, fcntl_add_seals, fcntl_get_seals, fcntl_getfl, fstat,
    openat,
};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use sunder_access::ProcessId;

/// The memory file of `bytes` bytes that `process` has made as its `descriptor` with
/// `MFD_ALLOW_SEALING`. Nobody can change its length from now on, so that it can be mapped.
///
/// # Errors
/// If another file is there, or the kernel gives no access to it.
pub fn memory_file(process: ProcessId, descriptor: i32, bytes: u64) -> io::Result<File> {
    let file = match taken_over(process, descriptor) {
        // Kernels before 5.6, and the filters of some containers.
        Err(Errno::NOSYS | Errno::PERM) => opened(process, descriptor)?,
        other => other?,
    };
    is_new_memory(&file)?;
    if fcntl_getfl(&file)? & OFlags::ACCMODE != OFlags::RDWR {
        return Err(another_file());
    }
    let file = File::from(file);
    file.set_len(bytes)?;
    sealed_at(bytes, file)
}

/// Seals a memory file, which others may have open and shorten until then.
fn sealed_at(bytes: u64, file: File) -> io::Result<File> {
    seal(&file)?;
    if file.metadata()?.len() == bytes {
        return Ok(file);
    }
    Err(io::Error::other("the program changed its length meanwhile"))
}

/// Forbids every change of a memory file's length: access to a mapping beyond the end would end
/// this process.
///
/// # Errors
/// If the file was not made with `MFD_ALLOW_SEALING`.
pub fn seal(file: &File) -> io::Result<()> {
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    Ok(fcntl_add_seals(file, all)?)
}

/// The very file that the process has open, with its own rights.
fn taken_over(process: ProcessId, descriptor: i32) -> Result<OwnedFd, Errno> {
    let number = Pid::from_raw(process.0 as i32).ok_or(Errno::SRCH)?;
    let process = pidfd_open(number, PidfdFlags::empty())?;
    pidfd_getfd(process, descriptor, PidfdGetfdFlags::empty())
}

/// The same, found by its name. What the name leads to is looked at before it is opened, and opened
/// for writing only when it is known to be new memory.
fn opened(process: ProcessId, descriptor: i32) -> io::Result<OwnedFd> {
    let process = proc::living_number(process);
    let path = format!("/proc/{process}/fd/{descriptor}");
    let found = openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    is_regular(&found)?;
    let again = |file: &OwnedFd, flags| {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        openat(CWD, path, flags | OFlags::CLOEXEC, Mode::empty())
    };
    let readable = again(&found, OFlags::RDONLY | OFlags::NONBLOCK)?;
    is_new_memory(&readable)?;
    Ok(again(&readable, OFlags::RDWR)?)
}

fn is_regular(file: &OwnedFd) -> io::Result<()> {
    let mode = fstat(file)?.st_mode;
    if FileType::from_raw_mode(mode).is_file() {
        return Ok(());
    }
    Err(another_file())
}

/// Only a memory file that was made to be sealed has no seals: other files can't have any, and those
/// of a `tmpfs`, like other memory files, are sealed against seals.
fn is_new_memory(file: &OwnedFd) -> io::Result<()> {
    is_regular(file)?;
    match fcntl_get_seals(file) {
        Ok(seals) if seals.is_empty() => Ok(()),
        _ => Err(another_file()),
    }
}

fn another_file() -> io::Error {
    io::Error::new(
        io::ErrorKind::PermissionDenied,
        "another file was put in its place",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{MemfdFlags, memfd_create};
    use std::os::unix::fs::FileExt;

    const BYTES: u64 = 1 << 16;

    fn own() -> ProcessId {
        ProcessId(std::process::id())
    }

    fn made(flags: MemfdFlags) -> File {
        File::from(memfd_create(c"test", flags | MemfdFlags::CLOEXEC).expect("memory"))
    }

    #[test]
    fn a_new_memory_file_is_taken_over_and_keeps_its_length() {
        let file = made(MemfdFlags::ALLOW_SEALING);
        let ours = memory_file(own(), file.as_raw_fd(), BYTES).expect("it is what was made");
        ours.write_all_at(b"x", BYTES - 1).expect("it is writable");
        assert_eq!(file.metadata().expect("there").len(), BYTES);
        assert!(file.set_len(1).is_err(), "it can't be shortened");
        assert!(file.set_len(BYTES + 1).is_err(), "nor made longer");
    }

    #[test]
    fn one_that_was_shortened_before_it_was_sealed_is_refused() {
        for len in [0, BYTES - 1, BYTES + 1] {
            let file = made(MemfdFlags::ALLOW_SEALING);
            file.set_len(len).expect("it is not sealed yet");
            let refused = sealed_at(BYTES, file).expect_err("it has another length");
            assert!(refused.to_string().contains("length"), "{refused}");
        }
        let file = made(MemfdFlags::ALLOW_SEALING);
        file.set_len(BYTES).expect("it is not sealed yet");
        sealed_at(BYTES, file).expect("it has this length");
    }

    #[test]
    fn by_its_name_it_is_the_same_file() {
        let file = made(MemfdFlags::ALLOW_SEALING);
        let again = opened(own(), file.as_raw_fd()).expect("it is what was made");
        File::from(again).write_all_at(b"abc", 0).expect("writable");
        let mut read = [0; 3];
        file.read_exact_at(&mut read, 0).expect("readable");
        assert_eq!(&read, b"abc");
    }

    #[test]
    fn any_other_file_is_refused_and_stays_as_it_is() {
        let plain = tempfile::NamedTempFile::new().expect("a file");
        std::fs::write(plain.path(), "kept").expect("writable");
        let shared = tempfile::NamedTempFile::new_in("/dev/shm").expect("a file of a tmpfs");
        std::fs::write(shared.path(), "kept").expect("writable");
        let read_only = made(MemfdFlags::ALLOW_SEALING);
        let path = format!("/proc/self/fd/{}", read_only.as_raw_fd());
        let others = [
            File::options().read(true).write(true).open(plain.path()),
            File::open(plain.path()),
            File::options().read(true).write(true).open(shared.path()),
            File::open("/dev/zero"),
            File::open("/proc/self/status"),
            Ok(made(MemfdFlags::empty())),
        ];
        for other in others {
            let other = other.expect("it can be opened");
            let number = other.as_raw_fd();
            assert!(memory_file(own(), number, BYTES).is_err(), "{other:?}");
            assert!(opened(own(), number).is_err(), "{other:?} by its name");
        }
        let unwritable = File::open(path).expect("readable");
        let refused = memory_file(own(), unwritable.as_raw_fd(), BYTES);
        assert!(refused.is_err(), "the program can't write it");
        for path in [plain.path(), shared.path()] {
            assert_eq!(std::fs::read(path).expect("readable"), b"kept");
        }
    }
}
