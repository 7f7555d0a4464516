//! The folders of `/proc` that describe a process or a thread, and reading a file in one.

use crate::ObserveError;
use crate::pending::PendingRead;
use std::fs;
use std::io;
use std::path::PathBuf;
use sunder_access::{ProcessId, ThreadId};

/// A folder of `/proc`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Folder {
    /// A process.
    Process(ProcessId),
    /// A thread of a process.
    Thread(ProcessId, ThreadId),
    /// This process, whatever its number in the `/proc` that is mounted.
    Own,
    /// The thread that asks.
    OwnThread,
}

impl Folder {
    /// The path of a file in it.
    pub fn path(self, file: &str) -> PathBuf {
        PathBuf::from(match self {
            Self::Process(process) => format!("/proc/{process}/{file}"),
            Self::Thread(process, thread) => format!("/proc/{process}/task/{thread}/{file}"),
            Self::Own => format!("/proc/self/{file}"),
            Self::OwnThread => format!("/proc/thread-self/{file}"),
        })
    }

    /// A read of a file in it begins.
    pub(super) fn reading(self) -> Option<PendingRead> {
        match self {
            Self::Process(process) | Self::Thread(process, _) => Some(PendingRead::begin(process)),
            Self::Own | Self::OwnThread => None,
        }
    }

    /// The text of a file in it; bytes that are no UTF-8 (a thread's name, a path) are
    /// replaced.
    pub(super) fn text(self, file: &str) -> io::Result<String> {
        let _reading = self.reading();
        let bytes = fs::read(self.path(file))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

pub(super) fn path(process: ProcessId, file: &str) -> PathBuf {
    Folder::Process(process).path(file)
}

/// Reads a file of `process`; `NoSuchProcess` if that is the reason why not.
pub(super) fn read(process: ProcessId, file: &str) -> Result<Vec<u8>, ObserveError> {
    let path = path(process, file);
    let _reading = PendingRead::begin(process);
    fs::read(&path).map_err(|source| explain(process, path, source))
}

pub(super) fn explain(process: ProcessId, path: PathBuf, source: io::Error) -> ObserveError {
    let gone =
        source.kind() == io::ErrorKind::NotFound || source.raw_os_error() == Some(libc::ESRCH);
    if gone {
        ObserveError::NoSuchProcess(process)
    } else {
        ObserveError::Proc { path, source }
    }
}
