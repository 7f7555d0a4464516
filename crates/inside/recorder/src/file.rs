//! The trace file. All threads append blocks at the same time, each at its own offset. The
//! descriptor has a high number and is checked before each write, because programs close
//! descriptors that they did not open. Contexts: all; appending with signals blocked.

use crate::refusal::Refusal;
use core::cell::UnsafeCell;
use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use sunder_guest::system;

const LONGEST_PATH: usize = 4096;

/// The descriptor is moved to at least this number, or to a lower one if the limit of descriptors
/// demands it.
const HIGH: u64 = 1000;

/// The trace file.
#[derive(Debug)]
pub struct File {
    fd: AtomicI32,
    device: AtomicU64,
    inode: AtomicU64,
    /// The offset of the next block.
    end: AtomicU64,
    path: UnsafeCell<[u8; LONGEST_PATH]>,
    reopening: AtomicBool,
}

// SAFETY: `path` is written once, by `open`, before another thread uses the file.
unsafe impl Sync for File {}

impl File {
    pub const fn new() -> Self {
        Self {
            fd: AtomicI32::new(-1),
            device: AtomicU64::new(0),
            inode: AtomicU64::new(0),
            end: AtomicU64::new(sunder_trace::meta::PREFIX_BYTES as u64),
            path: UnsafeCell::new([0; LONGEST_PATH]),
            reopening: AtomicBool::new(false),
        }
    }

    /// Opens the file and claims it for this process; only one process can.
    pub fn open(&self, path: &[u8]) -> Result<(), Refusal> {
        let fd = open(path, libc::O_RDWR | libc::O_CREAT).map_err(Refusal::File)?;
        let identity = system::identity(fd).filter(|i| i.regular);
        let free = system::try_lock(fd) && system::identity(fd).is_some_and(|i| i.size == 0);
        let refusal = match identity {
            None => Some(Refusal::File(libc::EINVAL as u32)),
            Some(_) if !free => Some(Refusal::Taken),
            Some(_) if path.len() > LONGEST_PATH => Some(Refusal::File(libc::ENAMETOOLONG as u32)),
            Some(_) => None,
        };
        if let Some(refusal) = refusal {
            system::close(fd);
            return Err(refusal);
        }
        if let Some(identity) = identity {
            self.device.store(identity.file.0, Ordering::Relaxed);
            self.inode.store(identity.file.1, Ordering::Relaxed);
        }
        // SAFETY: no other thread uses the file before this function returns.
        let kept = unsafe { &mut *self.path.get() };
        for (to, from) in kept.iter_mut().zip(path) {
            *to = *from;
        }
        self.fd.store(lift(fd), Ordering::Release);
        Ok(())
    }

    /// The number of bytes written or reserved.
    pub fn bytes(&self) -> u64 {
        self.end.load(Ordering::Relaxed)
    }

    /// Overwrites the first bytes.
    pub fn write_start(&self, bytes: &[u8]) -> Result<(), u32> {
        if bytes.len() as u64 > system::limit(libc::RLIMIT_FSIZE) {
            return Err(libc::EFBIG as u32);
        }
        system::write_all_at(self.descriptor()?, bytes, 0)
    }

    /// Appends a block, given in parts.
    ///
    /// # Errors
    /// The system's error number. The range in the file stays reserved.
    pub fn append(&self, parts: &[&[u8]]) -> Result<(), u32> {
        let bytes: u64 = parts.iter().map(|p| p.len() as u64).sum();
        let mut at = self.end.fetch_add(bytes, Ordering::Relaxed);
        // Beyond this limit the program would get a signal (SIGXFSZ) because of us.
        if at.saturating_add(bytes) > system::limit(libc::RLIMIT_FSIZE) {
            return Err(libc::EFBIG as u32);
        }
        let fd = self.descriptor()?;
        for part in parts {
            system::write_all_at(fd, part, at)?;
            at += part.len() as u64;
        }
        Ok(())
    }

    fn is_ours(&self, fd: i32) -> bool {
        let ours = (
            self.device.load(Ordering::Relaxed),
            self.inode.load(Ordering::Relaxed),
        );
        system::identity(fd).is_some_and(|i| i.file == ours)
    }

    /// The descriptor; the file is opened again if the program has closed it.
    fn descriptor(&self) -> Result<i32, u32> {
        let fd = self.fd.load(Ordering::Acquire);
        if self.is_ours(fd) {
            return Ok(fd);
        }
        while self.reopening.swap(true, Ordering::Acquire) {
            system::give_way();
        }
        let result = self.reopen();
        self.reopening.store(false, Ordering::Release);
        result
    }

    fn reopen(&self) -> Result<i32, u32> {
        let fd = self.fd.load(Ordering::Acquire);
        if self.is_ours(fd) {
            return Ok(fd);
        }
        // SAFETY: the path is not written any more.
        let path = unsafe { &*self.path.get() };
        let end = path.iter().position(|&b| b == 0).unwrap_or(0);
        let fd = lift(open(path.get(..=end).unwrap_or_default(), libc::O_RDWR)?);
        if !self.is_ours(fd) {
            system::close(fd);
            return Err(libc::ESTALE as u32);
        }
        self.fd.store(fd, Ordering::Release);
        Ok(fd)
    }
}

/// Opens a file; `path` ends with a zero byte.
pub fn open(path: &[u8], flags: i32) -> Result<i32, u32> {
    if path.last() != Some(&0) {
        return Err(libc::EINVAL as u32);
    }
    // SAFETY: the path was checked to end with a zero byte.
    let result = unsafe { system::open_at(libc::AT_FDCWD, path.as_ptr(), flags) };
    system::outcome(result).map(|fd| fd as i32)
}

/// Reads from the start of a file; returns the number of bytes read.
pub fn read(fd: i32, to: &mut [u8]) -> usize {
    let mut read = 0;
    while let Some(rest) = to.get_mut(read..).filter(|r| !r.is_empty()) {
        match usize::try_from(system::read_at(fd, rest, read as u64)) {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    read
}

/// Moves a descriptor to a number that the program does not use.
fn lift(fd: i32) -> i32 {
    let least = system::limit(libc::RLIMIT_NOFILE)
        .saturating_sub(16)
        .min(HIGH);
    match system::duplicate(fd, least as usize) {
        Some(high) => {
            system::close(fd);
            high
        }
        None => fd,
    }
}
