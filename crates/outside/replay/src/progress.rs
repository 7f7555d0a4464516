//! How far replays have come, for whoever shows it.

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use sunder_trace::read::Trace;

/// Is told of the readings of a trace.
pub trait Progress: Send + Sync {
    /// The trace, which has so many events, is read for the time of this number, from 1.
    fn reading(&self, number: u32, events: u64) -> Box<dyn Advance>;
}

/// Is told how far one reading has come; dropped at its end.
pub trait Advance {
    /// So many more events were read.
    fn add(&self, events: u64);
}

/// Nothing is shown.
pub struct NoProgress;

impl Progress for NoProgress {
    fn reading(&self, _number: u32, _events: u64) -> Box<dyn Advance> {
        Box::new(Self)
    }
}

impl Advance for NoProgress {
    fn add(&self, _events: u64) {}
}

/// All readings of a trace for one command.
pub struct Readings {
    told: Arc<dyn Progress>,
    count: AtomicU32,
}

impl Readings {
    /// Nothing was read yet.
    pub fn new(told: Arc<dyn Progress>) -> Self {
        Self {
            told,
            count: AtomicU32::new(0),
        }
    }

    /// The trace is read once more.
    pub fn reading(&self, trace: &Trace) -> Reading {
        let number = self.count.fetch_add(1, Ordering::Relaxed) + 1;
        let events = trace.threads().iter().map(|thread| thread.events).sum();
        Reading {
            told: self.told.reading(number, events),
            unsaid: Cell::new(0),
        }
    }
}

/// One reading.
pub struct Reading {
    told: Box<dyn Advance>,
    unsaid: Cell<usize>,
}

/// So many events are told at once: who shows them asks for the time each time.
const SAID: usize = 1 << 20;

impl Reading {
    /// So many more events were read.
    pub fn add(&self, events: usize) {
        let unsaid = self.unsaid.get() + events;
        if unsaid < SAID {
            return self.unsaid.set(unsaid);
        }
        self.unsaid.set(0);
        self.told.add(unsaid as u64);
    }
}
