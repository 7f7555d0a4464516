//! Waits until the rings of events have records.

use super::PerfEvent;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use std::io;
use std::time::Duration;

/// The state of some events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Readiness {
    /// A ring has records to read.
    pub ready: bool,
    /// The thread of an event has ended.
    pub ended: bool,
}

/// Sleeps until one of `events` is ready or has ended, or `timeout` is over, or a signal came.
///
/// # Errors
/// That of `poll`.
pub(crate) fn poll<'a>(
    events: impl Iterator<Item = &'a PerfEvent>,
    timeout: Duration,
) -> io::Result<Readiness> {
    let mut polled: Vec<_> = events
        .map(|event| PollFd::new(event, PollFlags::IN))
        .collect();
    // Whole milliseconds, and at least one, so that short waits do not make a busy loop.
    let milliseconds = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i64;
    let timeout = Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    match rustix::event::poll(&mut polled, Some(&timeout)) {
        Ok(_) => {}
        Err(Errno::INTR) => return Ok(Readiness::default()),
        Err(error) => return Err(error.into()),
    }
    let answers = polled.iter().map(PollFd::revents);
    let all = answers.fold(PollFlags::empty(), PollFlags::union);
    Ok(Readiness {
        ready: all.contains(PollFlags::IN),
        ended: all.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL),
    })
}
