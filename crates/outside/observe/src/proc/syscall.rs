//! `syscall`: whether a thread runs in user space.

use super::folder::Folder;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use sunder_access::{ProcessId, ThreadId};

/// The file of one thread, open.
#[derive(Debug)]
pub(crate) struct SyscallFile(File);

impl SyscallFile {
    /// That of a thread.
    pub(crate) fn open(process: ProcessId, thread: ThreadId) -> io::Result<Self> {
        File::open(Folder::Thread(process, thread).path("syscall")).map(Self)
    }

    /// Whether it runs or could run.
    pub(crate) fn runs(&self) -> io::Result<bool> {
        let mut text = [0; 8];
        let read = self.0.read_at(&mut text, 0)?;
        // Otherwise the number of the system call, or -1 in a page fault.
        Ok(text[..read].starts_with(b"running"))
    }
}

/// Whether a thread runs or could run in user space. One that can't be asked does not.
pub fn runs(process: ProcessId, thread: ThreadId) -> bool {
    SyscallFile::open(process, thread).is_ok_and(|file| file.runs().unwrap_or(false))
}
