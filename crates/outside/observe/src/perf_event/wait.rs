//! Waits until the rings of events have records.

use super::PerfEvent;
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fd::OwnedFd;
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
    let polled = events.map(|event| PollFd::new(event, PollFlags::IN));
    let answers = wait(&mut polled.collect::<Vec<_>>(), timeout)?;
    let all = answers
        .into_iter()
        .fold(PollFlags::empty(), PollFlags::union);
    Ok(Readiness {
        ready: all.contains(PollFlags::IN),
        ended: all.intersects(GONE),
    })
}

/// Sleeps until one of `events` is ready, `end` is readable, or `timeout` is over, or a signal came. `end` is
/// the descriptor of a process (`pidfd_open(2)`): it is readable once all of its threads have ended.
///
/// # Errors
/// That of `poll`.
pub(crate) fn poll_until<'a>(
    events: impl Iterator<Item = &'a PerfEvent>,
    end: &'a OwnedFd,
    timeout: Duration,
) -> io::Result<Readiness> {
    let ends = [PollFd::new(end, PollFlags::IN)];
    let events = events.map(|event| PollFd::new(event, PollFlags::IN));
    let answers = wait(
        &mut ends.into_iter().chain(events).collect::<Vec<_>>(),
        timeout,
    )?;
    let Some((end, events)) = answers.split_first() else {
        return Ok(Readiness::default());
    };
    Ok(Readiness {
        ready: events.iter().any(|answer| answer.contains(PollFlags::IN)),
        ended: end.intersects(GONE | PollFlags::IN),
    })
}

/// What is polled is no longer there.
const GONE: PollFlags = PollFlags::HUP.union(PollFlags::ERR).union(PollFlags::NVAL);

/// Polls once; no answer if a signal came.
fn wait(polled: &mut [PollFd<'_>], timeout: Duration) -> io::Result<Vec<PollFlags>> {
    // Whole milliseconds, and at least one, so that short waits do not make a busy loop.
    let milliseconds = timeout.as_micros().div_ceil(1000).min(i32::MAX as u128) as i64;
    let timeout = Timespec {
        tv_sec: milliseconds / 1000,
        tv_nsec: milliseconds % 1000 * 1_000_000,
    };
    match rustix::event::poll(polled, Some(&timeout)) {
        Ok(_) => Ok(polled.iter().map(PollFd::revents).collect()),
        Err(Errno::INTR) => Ok(Vec::new()),
        Err(error) => Err(error.into()),
    }
}
