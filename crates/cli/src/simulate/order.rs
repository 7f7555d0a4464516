//! In which order a trace is replayed. Only a choice between two readers.

use crate::args::OrderChoice;
use sunder_trace::read::{Event, Events, Filter, Parallel, Trace};

/// The events of a trace in one of two orders.
pub enum Ordered<'t> {
    /// As they were recorded.
    Recorded(Events<'t>),
    /// As if each thread had a processor of its own.
    Parallel(Parallel<'t>),
}

impl<'t> Ordered<'t> {
    /// The events that pass `filter`.
    pub fn new(trace: &'t Trace, order: OrderChoice, filter: Filter) -> Self {
        match order {
            OrderChoice::Recorded => Self::Recorded(trace.events(filter)),
            OrderChoice::Parallel => Self::Parallel(trace.events_in_parallel(filter)),
        }
    }

    /// Blocks that could not be read so far.
    pub fn damaged_blocks(&self) -> u64 {
        match self {
            Self::Recorded(events) => events.damaged_blocks(),
            Self::Parallel(events) => events.damaged_blocks(),
        }
    }
}

impl Iterator for Ordered<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        match self {
            Self::Recorded(events) => events.next(),
            Self::Parallel(events) => events.next(),
        }
    }
}
