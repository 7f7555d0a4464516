//! Says why `perf_event_open` failed, in words that lead to the remedy. The kernel returns few
//! error numbers, each with several causes; `/proc` tells them apart.

use crate::proc::{Fields, Folder};
use std::{fmt, fs, io};
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

impl PerfRefusal {
    /// The reason of `errno` from `perf_event_open` for `process` on this machine.
    pub fn from_errno(errno: i32, process: ProcessId) -> Self {
        Self::classify(errno, process, paranoid_level().unwrap_or(2), may_profile())
    }

    /// The same without reading `/proc`: `privileged` means CAP_PERFMON or CAP_SYS_ADMIN, for which
    /// `level` does not matter.
    fn classify(errno: i32, process: ProcessId, level: i32, privileged: bool) -> Self {
        match errno {
            libc::EACCES | libc::EPERM if level > 2 && !privileged => Self::Paranoid { level },
            libc::EACCES => Self::NotOurs { process },
            libc::EPERM => Self::Filtered,
            libc::ENOSYS => Self::Missing,
            libc::EMFILE | libc::ENFILE => Self::Descriptors {
                limit: descriptor_limit(),
            },
            libc::EINVAL | libc::ENOENT | libc::ENODEV | libc::EOPNOTSUPP => {
                Self::Unsupported { errno }
            }
            _ => Self::Other { errno },
        }
    }

    /// The reason of `errno` from mapping a ring.
    pub(crate) fn from_map_errno(errno: i32) -> Self {
        match errno {
            libc::EPERM | libc::ENOMEM => Self::LockedMemory {
                kib_per_cpu: read_number("/proc/sys/kernel/perf_event_mlock_kb").unwrap_or(0)
                    as u64,
            },
            _ => Self::Other { errno },
        }
    }
}

/// `kernel.perf_event_paranoid`, if it can be read.
pub fn paranoid_level() -> Option<i32> {
    read_number("/proc/sys/kernel/perf_event_paranoid").map(|n| n as i32)
}

fn read_number(path: &str) -> Option<i64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// Whether this process has CAP_PERFMON (38) or CAP_SYS_ADMIN (21).
fn may_profile() -> bool {
    let status = Fields::read(Folder::Own).ok();
    status
        .and_then(|status| status.bits("CapEff"))
        .is_some_and(|capabilities| capabilities & (1 << 38 | 1 << 21) != 0)
}

fn descriptor_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer to `limit` is valid.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
    limit.rlim_cur
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_number_has_its_reason() {
        let process = ProcessId(7);
        let of =
            |errno, level, privileged| PerfRefusal::classify(errno, process, level, privileged);
        assert_eq!(
            of(libc::EACCES, 3, false),
            PerfRefusal::Paranoid { level: 3 }
        );
        assert_eq!(
            of(libc::EPERM, 4, false),
            PerfRefusal::Paranoid { level: 4 }
        );
        // The level does not hold for privileged users, so it is not the reason.
        assert_eq!(of(libc::EPERM, 4, true), PerfRefusal::Filtered);
        assert_eq!(of(libc::EPERM, 2, false), PerfRefusal::Filtered);
        assert_eq!(of(libc::EACCES, 2, false), PerfRefusal::NotOurs { process });
        assert_eq!(of(libc::ENOSYS, 2, false), PerfRefusal::Missing);
        assert!(matches!(
            of(libc::EMFILE, 2, false),
            PerfRefusal::Descriptors { .. }
        ));
        assert!(matches!(
            of(libc::EINVAL, 2, false),
            PerfRefusal::Unsupported { .. }
        ));
    }
}
