//! What an observer is to the loop around a running target. Each one has a file of its own
//! (`perf`, `timer`, `pmu`; the one that compares pages lies with `protect`), and a line in
//! `choice`. An observer sees; it must not judge, and must not know who else observes.

use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::Limit;
use sunder_observe::perf::Wait;
use sunder_observe::{Event, ObserveError};
use sunder_pipeline::Session;

/// A way of seeing what a program does while it runs.
pub trait Observer {
    /// Called before each wait, with the process that was started or attached to.
    fn prepare(&mut self, _root: ProcessId, _session: &mut Session) {}

    /// Waits until something may have come, at most for `pause`, which it may shorten. One that
    /// has nothing to wait on says that all may have ended, so that the caller waits instead.
    ///
    /// # Errors
    /// If waiting itself fails.
    fn wait(&mut self, _pause: &mut Duration) -> Result<Wait, ObserveError> {
        Ok(Wait::Ended)
    }

    /// Hands over what has come since the last time; with `last` the target has ended or the
    /// time is over, and all that is left is handed over.
    fn drain(&mut self, intake: &mut Intake<'_>, last: bool);

    /// What it could not see.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }

    /// How closely it looks.
    fn attention(&self) -> Attention {
        Attention::Steady
    }

    /// There is something worth looking at more closely.
    fn alert(&mut self) {}

    /// Whether what it sees comes from inside the target, and nothing but the runtime there
    /// tells of mappings and threads.
    fn is_inside(&self) -> bool {
        false
    }

    /// Whether it may see nothing of the program's beginning.
    fn comes_late(&self) -> bool {
        false
    }

    /// Whether the program has children that are our doing.
    fn makes_processes(&self) -> bool {
        false
    }

    /// Whether what it sees is exact, so that watchpoints need not confirm it.
    fn confirms(&self) -> bool {
        false
    }
}

/// How closely an observer looks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attention {
    /// Always in the same way.
    Steady,
    /// Closely, for so long now.
    Alerted(Duration),
    /// Not closely, as nothing is suspected; the program has had several threads for so long.
    Calm(Duration),
}

/// Where an observer hands over what it saw.
pub struct Intake<'a> {
    /// Keeps it.
    pub session: &'a mut Session,
    is_untold: &'a mut bool,
}

impl<'a> Intake<'a> {
    /// Into `session`; `is_untold` becomes false as soon as an event tells which program the
    /// process executes.
    pub const fn new(session: &'a mut Session, is_untold: &'a mut bool) -> Self {
        Self { session, is_untold }
    }

    /// Something was seen.
    pub fn event(&mut self, event: Event) {
        *self.is_untold &= !matches!(event, Event::ThreadName { exec: true, .. });
        self.session.event(event);
    }
}
