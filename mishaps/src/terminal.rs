//! A terminal of our own, so that it can be closed.

use crate::places::done;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Our end of a terminal, which is closed with it.
pub struct Terminal(File);

impl Terminal {
    /// A new terminal: our end and the other one.
    ///
    /// # Errors
    /// If there are no more.
    pub fn open() -> io::Result<(Self, OwnedFd)> {
        let (mut ours, mut other) = (-1, -1);
        let null = std::ptr::null_mut();
        // SAFETY: the first two are valid places; the rest may be null.
        done(unsafe {
            libc::openpty(
                &raw mut ours,
                &raw mut other,
                null,
                null.cast(),
                null.cast(),
            )
        })?;
        // SAFETY: both descriptors are new and nobody else's.
        let (ours, other) = unsafe { (OwnedFd::from_raw_fd(ours), OwnedFd::from_raw_fd(other)) };
        for end in [&ours, &other] {
            // SAFETY: takes integers.
            unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFD, libc::FD_CLOEXEC) };
        }
        // SAFETY: takes integers.
        unsafe { libc::fcntl(ours.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
        Ok((Self(File::from(ours)), other))
    }
    /// Takes away what was written to it, so that writers do not wait.
    pub fn drain(&mut self) {
        let _ = self.0.read(&mut [0; 4096]);
    }
}
