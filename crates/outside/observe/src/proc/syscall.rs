//! `syscall`: whether a thread runs in user space. The file is root's if the process hides its memory;
//! then `stat` tells of a thread that runs, in the kernel's own words for the same.

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
        let open = |name: &str| File::open(Folder::Thread(process, thread).path(name));
        open("syscall")
            .or_else(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => open("stat"),
                _ => Err(error),
            })
            .map(Self)
    }

    /// Whether it runs or could run.
    pub(crate) fn runs(&self) -> io::Result<bool> {
        // `stat` has the state behind a number and a name of at most 64 bytes.
        let mut text = [0; 128];
        let read = self.0.read_at(&mut text, 0)?;
        Ok(says_running(&text[..read]))
    }
}

/// Whether the beginning of `syscall` or `stat` says so. Otherwise the first has the number of the
/// system call, or -1 in a page fault.
fn says_running(text: &[u8]) -> bool {
    let behind_name = text.iter().rposition(|&byte| byte == b')');
    text.starts_with(b"running") || behind_name.is_some_and(|at| text[at..].starts_with(b") R"))
}

/// Whether a thread runs or could run in user space. One that can't be asked does not.
pub fn runs(process: ProcessId, thread: ThreadId) -> bool {
    SyscallFile::open(process, thread).is_ok_and(|file| file.runs().unwrap_or(false))
}

#[cfg(test)]
mod tests {
    use super::says_running;

    #[test]
    fn both_files_tell_what_runs() {
        let running: [&[u8]; 3] = [b"running\n", b"12 (a) R 1 12", b"12 (a) S b)) R 1"];
        for text in running {
            assert!(says_running(text));
        }
        let other: [&[u8]; 4] = [b"7 0x1 0x2", b"-1 0x1", b"12 (a) R b) S 1", b"12 (R"];
        for text in other {
            assert!(!says_running(text));
        }
    }
}
