//! Why a burst of watchpoints did not happen.

use crate::PerfRefusal;
use std::time::Duration;
use sunder_access::{Address, ProcessId, ThreadId};

/// Why there was no burst. The target has no watchpoint then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WatchError {
    /// An address that is no aligned word.
    #[error("{0} is not the address of an aligned word of 8 bytes")]
    Unaligned(Address),
    /// No word, or no hit.
    #[error("a burst needs at least one word and one hit a thread")]
    Empty,
    /// None of the threads exists any more.
    #[error("no thread of process {0} is left to watch")]
    NoThreads(ProcessId),
    /// A debugger or another profiler uses the watchpoints.
    #[error(
        "all hardware watchpoints of thread {0} are in use; end the debugger or the other \
         profiler that has them"
    )]
    SlotsTaken(ThreadId),
    /// The budget is spent for now; this is no failure.
    #[error("the watch budget is spent until the target has run for another {0:?}")]
    BudgetSpent(
        /// The CPU time that the target must use first.
        Duration,
    ),
    /// The kernel refuses watchpoints.
    #[error("hardware watchpoints were refused: {0}")]
    Refused(#[from] PerfRefusal),
}
