//! What can go wrong while observing. Every message is one sentence that a
//! user can act on; the program decides what to print.

use crate::PerfRefusal;
use std::{io, path::PathBuf};
use sunder_access::ProcessId;

/// Why something could not be observed or started.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ObserveError {
    /// The process does not exist, or ended meanwhile.
    #[error("there is no process {0}")]
    NoSuchProcess(ProcessId),

    /// The kernel does not let us open a perf event.
    #[error("perf_event_open was refused: {0}")]
    PerfRefused(#[from] PerfRefusal),

    /// There is no `/proc`.
    #[error("/proc is not mounted here, and without it nothing can be learned of a process")]
    NoProc,

    /// `/proc` has the numbers of another process namespace, under ours there are others.
    #[error(
        "/proc is that of another process namespace; mount this one's: `mount -t proc proc /proc`, \
         or `unshare --mount-proc`"
    )]
    ForeignProc,

    /// A file below `/proc` could not be read.
    #[error("cannot read {}: {source}", path.display())]
    Proc {
        /// The file.
        path: PathBuf,
        /// The error of reading it.
        source: io::Error,
    },

    /// The program could not be executed; the child is gone.
    #[error("cannot execute {program}: {source}")]
    Execute {
        /// The program as the user named it.
        program: String,
        /// The error of `execve`, or of the search in `PATH`.
        source: io::Error,
    },

    /// An argument or variable holds a zero byte, which no program can be given.
    #[error("{0:?} contains a zero byte")]
    ZeroByte(String),

    /// A burst of watchpoints did not happen.
    #[error(transparent)]
    Watch(#[from] crate::WatchError),

    /// A recording could not be read.
    #[error(transparent)]
    Import(#[from] crate::ImportError),

    /// A system call failed that normally does not.
    #[error("cannot {doing}: {source}")]
    System {
        /// The attempted action, as a verb phrase.
        doing: &'static str,
        /// The error of the system call.
        source: io::Error,
    },
}
