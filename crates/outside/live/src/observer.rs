//! The interface between an observer and the loop around a running target. Each observer has a
//! file of its own (`perf`, `timer`, `pmu`; the one that compares pages is in `protect`) and a
//! line in `choice`. An observer reports what it saw; it must not judge, and must not know
//! about other observers.

use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::Limit;
use sunder_observe::perf::Wait;
use sunder_observe::{Event, ObserveError};
use sunder_pipeline::Session;

/// A source of events about a running program.
pub trait Observer {
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

    /// Hands over what has come since the last call. `last` means that the target has ended or
    /// that the time is over: everything that is left has to be handed over.
    fn drain(&mut self, intake: &mut Intake<'_>, last: bool);

    /// What the observer could not see.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
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

/// Where an observer hands over its events.
pub struct Intake<'a> {
    /// The session that keeps the events.
    pub session: &'a mut Session,
    is_untold: &'a mut bool,
}

impl<'a> Intake<'a> {
    /// Hands over to `session`. `is_untold` becomes false at the first event that tells which
    /// program the process executes.
    pub const fn new(session: &'a mut Session, is_untold: &'a mut bool) -> Self {
        Self { session, is_untold }
    }

    /// Hands over one event.
    pub fn event(&mut self, event: Event) {
        *self.is_untold &= !matches!(event, Event::ThreadName { exec: true, .. });
        self.session.event(event);
    }
}
