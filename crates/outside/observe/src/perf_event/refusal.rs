//! Why the kernel refused a perf event, in words that lead to the remedy. The causes are told
//! apart in `diagnosis`.

use std::{fmt, io};
use sunder_access::ProcessId;

/// Why the kernel refused a perf event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PerfRefusal {
    /// `EACCES` or `EPERM` with `kernel.perf_event_paranoid` above 2, the
    /// setting of Debian and Ubuntu that forbids perf to ordinary users.
    Paranoid {
        /// The value of the setting.
        level: i32,
    },
    /// `EACCES`: the process belongs to another user or cannot be traced.
    NotOurs {
        /// The process.
        process: ProcessId,
    },
    /// `EACCES` or `EPERM` for an event of a whole CPU, which shows the programs of all users.
    WholeMachine,
    /// `EPERM` although nothing in `/proc` forbids it: a seccomp filter, as
    /// container runtimes install it, or a security module.
    Filtered,
    /// `ENOSYS`: a kernel without perf events, or a filter that hides them.
    Missing,
    /// `EMFILE`: the limit of descriptors is too low.
    Descriptors {
        /// `RLIMIT_NOFILE`, after it was raised as far as allowed.
        limit: u64,
    },
    /// `EPERM` or `ENOMEM` while mapping a ring: the memory that a user may
    /// lock for perf (`kernel.perf_event_mlock_kb`) is used up.
    LockedMemory {
        /// `kernel.perf_event_mlock_kb`.
        kib_per_cpu: u64,
    },
    /// `EINVAL`, `ENOENT`, `ENODEV` or `EOPNOTSUPP`: this kernel or machine does not support the
    /// event.
    Unsupported {
        /// The error number.
        errno: i32,
    },
    /// Any other error.
    Other {
        /// The error number.
        errno: i32,
    },
}

impl fmt::Display for PerfRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Paranoid { level } => write!(
                f,
                "kernel.perf_event_paranoid is {level}; \
                 an administrator can allow it with `sysctl kernel.perf_event_paranoid=2`"
            ),
            Self::WholeMachine => f.write_str(
                "samples of the whole machine need root, or CAP_PERFMON and CAP_SYS_PTRACE",
            ),
            Self::NotOurs { process } => write!(
                f,
                "process {process} belongs to another user or does not let itself be traced"
            ),
            Self::Filtered => f.write_str(
                "a seccomp filter or security module forbids it, as containers do \
                 (with Docker: `--security-opt seccomp=unconfined` or `--cap-add PERFMON`)",
            ),
            Self::Missing => f.write_str("the kernel has no perf events, or hides them (ENOSYS)"),
            Self::Descriptors { limit } => write!(
                f,
                "too many open files (the limit is {limit}); raise it with `ulimit -n`"
            ),
            Self::LockedMemory { kib_per_cpu } => write!(
                f,
                "no locked memory is left for its buffers \
                 (kernel.perf_event_mlock_kb is {kib_per_cpu}); is another profiler running?"
            ),
            Self::Unsupported { errno } => write!(
                f,
                "the kernel does not support this event ({})",
                io::Error::from_raw_os_error(errno)
            ),
            Self::Other { errno } => io::Error::from_raw_os_error(errno).fmt(f),
        }
    }
}

impl std::error::Error for PerfRefusal {}
