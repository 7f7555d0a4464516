//! Finds out why `perf_event_open` failed. The kernel returns few error numbers, each with several
//! causes; `/proc` tells them apart.

use super::PerfRefusal;
use crate::proc::{Fields, Folder, own_limit};
use std::fs;
use sunder_access::ProcessId;

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
            // Of whoever may profile everybody, the kernel does not ask whose the process is.
            libc::EACCES if privileged => Self::Filtered,
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

/// `RLIMIT_NOFILE`; `u64::MAX` if there is no limit, or none is known.
fn descriptor_limit() -> u64 {
    own_limit(libc::RLIMIT_NOFILE).map_or(u64::MAX, |(soft, _)| soft)
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
        assert_eq!(of(libc::EACCES, 2, true), PerfRefusal::Filtered);
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
