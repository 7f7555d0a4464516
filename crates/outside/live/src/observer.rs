//! The interface between the observer of a running target and the loop around it. Each observer
//! has a file of its own (`perf`, `timer`, `pmu`; the one that compares pages is in `protect`) and
//! a line in the table of `choice`. How events are handed over is common to live and recorded
//! data, and is in [`Observer`]. An observer reports what it saw; it must not judge, and must not
//! know about other observers.

use std::convert::Infallible;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_observe::ObserveError;
use sunder_observe::perf::Wait;
use sunder_pipeline::{Observer, Session};

/// A source of events about a running program.
pub trait LiveObserver: Observer<Error = Infallible> {
    /// Called before each wait, with the process that was started or attached to.
    fn prepare(&mut self, _root: ProcessId, _session: &mut Session) {}

    /// Waits until events may have come, for at most `pause`, which it may shorten. An observer
    /// that has no descriptor to wait on returns [`Wait::Ended`] at once; the caller then waits
    /// for the end of the process for the rest of `pause`.
    ///
    /// # Errors
    /// If waiting itself fails.
    fn wait(&mut self, _pause: &mut Duration) -> Result<Wait, ObserveError> {
        Ok(Wait::Ended)
    }

    /// How closely it observes at the moment.
    fn attention(&self) -> Attention {
        Attention::Steady
    }

    /// Tells the observer that a line is suspected, so that it may observe more closely.
    fn alert(&mut self) {}

    /// Whether the events come from inside the target. No event tells of mappings and threads,
    /// so they are read from `/proc`.
    fn is_inside(&self) -> bool {
        false
    }

    /// Whether it may miss the beginning of the program.
    fn comes_late(&self) -> bool {
        false
    }

    /// Whether it makes child processes of the program itself (workers of isolated threads).
    fn makes_processes(&self) -> bool {
        false
    }

    /// Whether its accesses are exact, so that watchpoints need not confirm them.
    fn confirms(&self) -> bool {
        false
    }
}

/// How closely an observer observes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Always with the same frequency.
    Steady,
    /// At a high frequency, for this long, because a line is suspected.
    Alerted(Duration),
    /// At a low frequency, because nothing is suspected. The duration is how long the program
    /// has had several threads.
    Calm(Duration),
}
