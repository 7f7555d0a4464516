//! What a stopped thread knows that waits in the kernel: its memory, and the limits of its sockets. Used by
//! `thread` for `waits`. It must not change anything but the words that it is asked to write.

use crate::waits::Words;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_observe::proc::{Fields, Folder};

/// A stopped thread that waits.
pub(super) struct Waiting(pub i32);

impl Waiting {
    /// The local and the remote side of a transfer of two words.
    fn sides(at: u64, words: *mut [i64; 2]) -> [libc::iovec; 2] {
        let side = |at: *mut libc::c_void| libc::iovec {
            iov_base: at,
            iov_len: size_of::<[i64; 2]>(),
        };
        [side(words.cast()), side(at as *mut libc::c_void)]
    }
}

impl Words for Waiting {
    fn read(&self, at: u64) -> Option<[i64; 2]> {
        let mut words = [0; 2];
        let [own, its] = Self::sides(at, &raw mut words);
        // SAFETY: the local buffer is valid for two words; the kernel checks the remote address.
        let done =
            unsafe { libc::process_vm_readv(self.0, &raw const own, 1, &raw const its, 1, 0) };
        (done == 16).then_some(words)
    }

    fn write(&mut self, at: u64, mut words: [i64; 2]) -> bool {
        let [own, its] = Self::sides(at, &raw mut words);
        // SAFETY: as above.
        16 == unsafe { libc::process_vm_writev(self.0, &raw const own, 1, &raw const its, 1, 0) }
    }

    fn socket_limit(&self, descriptor: i32, option: i32) -> Option<Duration> {
        let thread = ProcessId(self.0.unsigned_abs());
        let status = Fields::read(Folder::Process(thread)).ok()?;
        let process = status.number("Tgid")?;
        // SAFETY: takes no pointers.
        let process = unsafe { libc::syscall(libc::SYS_pidfd_open, process, 0) };
        let process = owned(process)?;
        let (call, of) = (libc::SYS_pidfd_getfd, process.as_raw_fd());
        // SAFETY: takes no pointers.
        let socket = owned(unsafe { libc::syscall(call, of, descriptor, 0) })?;
        // SAFETY: plain data, for which zeroes are valid.
        let mut limit: libc::timeval = unsafe { std::mem::zeroed() };
        let mut size = size_of_val(&limit) as libc::socklen_t;
        let (socket, place) = (socket.as_raw_fd(), (&raw mut limit).cast());
        // SAFETY: the place is valid for that size.
        let done =
            unsafe { libc::getsockopt(socket, libc::SOL_SOCKET, option, place, &raw mut size) };
        let seconds = u64::try_from(limit.tv_sec).ok()?;
        let rest = u64::try_from(limit.tv_usec).ok()?;
        (done == 0).then(|| Duration::from_secs(seconds) + Duration::from_micros(rest))
    }
}

/// The descriptor that a kernel call returned.
fn owned(returned: libc::c_long) -> Option<OwnedFd> {
    let descriptor = RawFd::try_from(returned).ok().filter(|&fd| fd >= 0)?;
    // SAFETY: the kernel has just made it for us.
    Some(unsafe { OwnedFd::from_raw_fd(descriptor) })
}
