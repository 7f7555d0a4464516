//! Reports how many events of a trace were read, to whatever shows it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use sunder_trace::read::Trace;

/// Receives the beginning of each reading of a trace.
pub trait Progress: Send + Sync {
    /// Reading `number` (from 1) of a trace with `events` events begins.
    fn reading(&self, number: u32, events: u64) -> Box<dyn Advance>;
}

/// Receives the progress of one reading. It is dropped at the end of the reading.
pub trait Advance {
    /// `events` more events were read.
    fn add(&self, events: u64);
}

/// Shows nothing.
pub struct NoProgress;

impl Progress for NoProgress {
    fn reading(&self, _number: u32, _events: u64) -> Box<dyn Advance> {
        Box::new(Self)
    }
}

impl Advance for NoProgress {
    fn add(&self, _events: u64) {}
}

/// Numbers all readings of a trace for one command.
pub struct Readings {
    caller: Arc<dyn Progress>,
    count: AtomicU32,
}

impl Readings {
    /// No reading has begun.
    pub fn new(caller: Arc<dyn Progress>) -> Self {
        Self {
            caller,
            count: AtomicU32::new(0),
        }
    }

    /// Begins another reading of the trace.
    pub fn reading(&self, trace: &Trace) -> Reading {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let events = trace.threads().iter().map(|thread| thread.events).sum();
        Reading {
            caller: self.caller.reading(number, events),
            unsaid: Cell::new(0),
        }
    }
}

/// One reading of a trace.
pub struct Reading {
    caller: Box<dyn Advance>,
    unsaid: Cell<usize>,
}

/// Events that are reported at once. A report is costly, because the display reads the clock.
const SAID: usize = 1 << 20;

impl Reading {
    /// `events` more events were read.
    pub fn add(&self, events: usize) {
        let unsaid = self.unsaid.get() + events;
        if unsaid < SAID {
            return self.unsaid.set(unsaid);
        }
        self.unsaid.set(0);
        self.caller.add(unsaid as u64);
    }
}
