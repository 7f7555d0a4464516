//! The events of all threads as if each had a CPU of its own and all ran at one speed: an access
//! takes one unit of every thread's time, and only synchronisation makes a thread wait. So the
//! result of a replay does not depend on how busy the recording machine was. Based on the recorded
//! order; reads each thread through an [`Events`] of its own.
//!
//! The order of synchronisation is kept: an event that acquires an object waits until all releases
//! of that object that were recorded before it have been given. A thread that leaves a barrier waits
//! for that round of it, however late it went on (`barriers`); one that leaves a condition variable,
//! for the first signal since it began to wait (`conditions`). A thread's start waits for its
//! creation, and a join for the ends of threads. Atomic operations are accesses and order nothing
//! here. The rules are in `waits`; `pieces` gives the same order, many accesses at once.
//!
//! Older traces do not tell which mutex belongs to a condition variable. There, a thread that wakes
//! waits for all earlier releases, and a thread that acquires any object waits for all earlier waits
//! on condition variables, each of which releases some mutex.
//!
//! The canonical order differs in one rule: locks and semaphores are not taken as recorded, but by
//! who asks first (`locks`).

use super::event::{Event, What};
use super::events::Events;
use super::filter::Filter;
use super::trace::Trace;
use super::waits::{ORDER, Waits};
use sunder_access::Time;

/// Events in the parallel order. See the module's head and [`Trace::events_in_parallel`].
#[derive(Debug)]
pub struct Parallel<'t> {
    filter: Filter,
    waits: Waits,
    streams: Vec<Events<'t>>,
}

impl<'t> Parallel<'t> {
    pub(super) fn new(trace: &'t Trace, filter: Filter, canonical: bool) -> Self {
        let mut waits = Waits::new(trace, &filter, canonical);
        let mut start = None::<Time>;
        let wanted = trace.threads().iter();
        let wanted = wanted.filter(|thread| filter.wants_thread(thread.index));
        let mut streams: Vec<Events<'t>> = Vec::new();
        for (thread, waiter) in wanted.zip(&mut waits.threads) {
            let mut events = Events::new(
                trace,
                Filter {
                    threads: Some(vec![thread.index]),
                    range: filter.range,
                    kinds: filter.kinds.with(ORDER),
                },
            );
            waiter.next = events.next();
            if let Some(first) = &waiter.next {
                start = Some(start.map_or(first.time, |s| s.min(first.time)));
            }
            streams.push(events);
        }
        waits.start = start.unwrap_or_default();
        Self {
            filter,
            waits,
            streams,
        }
    }

    /// Blocks of the trace that could not be read so far.
    pub fn damaged_blocks(&self) -> u64 {
        self.streams.iter().map(Events::damaged_blocks).sum()
    }

    /// Reads the next event of thread `number`; the end of the thread wakes others.
    #[inline]
    fn advance(&mut self, number: usize) {
        let next = self.streams[number].next();
        self.waits.threads[number].next = next;
        if next.is_none() {
            self.waits.finish(number);
        }
    }
}

impl Iterator for Parallel<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            let number = self.waits.turn()?;
            let waiter = &mut self.waits.threads[number];
            let Some(mut event) = waiter.next else {
                continue;
            };
            if let What::Access { access, .. } = &mut event.what {
                let time = Time(self.waits.start.0.saturating_add(waiter.clock));
                access.time = time;
                event.time = time;
                waiter.clock += 1;
                self.waits.ready.push_back(number);
                self.advance(number);
            } else if self.waits.deliver(number, &mut event) {
                self.advance(number);
                self.waits.delivered(number, &event);
            } else {
                continue;
            }
            if self.filter.wants(&event.what) {
                return Some(event);
            }
        }
    }
}
