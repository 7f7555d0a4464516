//! Waits for the end of a process that need not be our child.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;
use sunder_access::ProcessId;

/// A descriptor that becomes readable when the process ends; `None` on kernels before 5.3.
pub fn pidfd(process: ProcessId) -> Option<OwnedFd> {
    // SAFETY: the call takes two integers.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, process.0, 0) };
    // SAFETY: the kernel has just returned the descriptor, and nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd as i32) })
}

/// Waits at most `timeout` for the end of the process. Returns whether it has ended.
pub fn wait_end(pidfd: &Option<OwnedFd>, timeout: Duration) -> bool {
    let Some(fd) = pidfd else {
        std::thread::sleep(timeout);
        return false;
    };
    let mut poll = libc::pollfd {
        fd: fd.as_raw_fd(),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = libc::timespec {
        tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: one valid entry and a valid time; no signal mask is set.
    unsafe { libc::ppoll(&raw mut poll, 1, &raw const timeout, std::ptr::null()) > 0 }
}
