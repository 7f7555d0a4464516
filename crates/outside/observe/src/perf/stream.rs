//! The records of all CPUs' rings, as one stream of events in the order of time.
//!
//! The samplers of one process and of the whole machine read by it. It must not choose what is
//! observed, nor change a frequency.

use super::record::{self, Parsed};
use crate::Event;
use crate::clock::monotonic_now;
use crate::perf_event::Ring;
use std::time::Duration;
use sunder_access::Time;

/// Records younger than this wait for the next [`Stream::settled`]: an older one may not have
/// arrived in another CPU's ring yet.
const SETTLE: Duration = Duration::from_millis(1);

/// Rings and what has been read of them.
#[derive(Debug)]
pub(super) struct Stream {
    /// By CPU.
    rings: Vec<Ring>,
    bytes: Vec<u8>,
    parsed: Parsed,
    pending: Vec<(Time, Event)>,
}

impl Stream {
    /// A stream of these rings, by CPU.
    pub(super) fn new(rings: Vec<Ring>) -> Self {
        Self {
            rings,
            bytes: Vec::new(),
            parsed: Parsed::default(),
            pending: Vec::new(),
        }
    }

    /// From now on these rings are read, by CPU. What is in the old ones must have been collected.
    pub(super) fn replace(&mut self, rings: Vec<Ring>) {
        self.rings = rings;
    }

    /// Reads all rings, and keeps the events that `wanted` picks until they are passed on. Returns
    /// how many of these are samples.
    pub(super) fn collect(&mut self, mut wanted: impl FnMut(&Event) -> bool) -> u64 {
        for ring in &mut self.rings {
            self.bytes.clear();
            ring.take(&mut self.bytes);
            record::parse(&self.bytes, &mut self.parsed);
        }
        let mut samples = 0;
        let events = self.parsed.events.drain(..);
        self.pending.extend(events.filter(|(_, event)| {
            let keeps = wanted(event);
            samples += u64::from(keeps && matches!(event, Event::Sample(_)));
            keeps
        }));
        samples
    }

    /// The time up to which all records have arrived.
    pub(super) fn settled() -> Time {
        monotonic_now().before(SETTLE)
    }

    /// Passes on the events up to `until`, in the order of time.
    pub(super) fn deliver(&mut self, until: Time, sink: &mut dyn FnMut(Event)) {
        self.pending.sort_by_key(|(time, _)| *time);
        let settled = self.pending.partition_point(|(time, _)| *time <= until);
        for (_, event) in self.pending.drain(..settled) {
            sink(event);
        }
    }

    /// Puts `events` before what has been read, with the time `time`.
    pub(super) fn put_first(&mut self, time: Time, events: Vec<Event>) {
        let old = std::mem::take(&mut self.pending);
        self.pending = events.into_iter().map(|event| (time, event)).collect();
        self.pending.extend(old);
    }

    /// The events that have been read and not passed on.
    pub(super) fn pending(&self) -> impl Iterator<Item = &Event> {
        self.pending.iter().map(|(_, event)| event)
    }

    /// How many samples had no 64-bit user registers.
    pub(super) const fn without_registers(&self) -> u64 {
        self.parsed.without_registers
    }
}
