//! One thread's slots, some hundred at a time: decoded into columns that stay in a CPU's cache,
//! with the positions of slots that are no accesses. Readers of many accesses at once
//! ([`super::pieces`]) use it; it does not know other threads.

use super::bounds::BATCH;
use super::event::{Announced, Event, other_event};
use super::filter::Kinds;
use super::trace::Trace;
use crate::codec::decode::{Columns, Decoder};
use crate::slot::{Key, Slot, access_kind};
use sunder_access::{ThreadId, Time};

/// A thread's position in its blocks.
#[derive(Debug)]
pub(super) struct Lane<'t> {
    trace: &'t Trace,
    /// Index in `Trace::threads`.
    thread: usize,
    pub(super) index: u32,
    pub(super) id: ThreadId,
    next_block: usize,
    decoder: Option<Decoder>,
    pub(super) batch: Columns,
    /// Index of the next slot.
    pub(super) at: usize,
    /// Indices of slots that are no accesses, ascending; the field below is the next of them.
    stops: Vec<usize>,
    next_stop: usize,
    /// Size, call stack and code of an allocation; the next slot has its address.
    announced: Option<Announced>,
    /// The wanted kinds of events besides accesses.
    kinds: Kinds,
    pub(super) damaged: u64,
}

impl<'t> Lane<'t> {
    /// All accesses of the thread with this index, and its events of `kinds`.
    pub(super) fn new(trace: &'t Trace, thread: usize, kinds: Kinds) -> Self {
        let known = &trace.threads[thread];
        Self {
            trace,
            thread,
            index: known.index,
            id: known.id,
            next_block: 0,
            decoder: None,
            batch: Columns::default(),
            at: 0,
            stops: Vec::new(),
            next_stop: 0,
            announced: None,
            kinds,
            damaged: 0,
        }
    }

    /// The time of the next slot, if one is decoded.
    pub(super) fn time(&self) -> Option<Time> {
        let ticks = self.batch.ticks.get(self.at);
        ticks.map(|&ticks| self.time_of(ticks))
    }

    /// The start of its first block in ticks, which is not later than its first event; `None`
    /// without blocks.
    pub(super) fn begins(&self) -> Option<u64> {
        let blocks = &self.trace.threads[self.thread].blocks;
        blocks.first().map(|block| block.header.first)
    }

    /// How many accesses come before another event or the end of the batch.
    #[inline]
    pub(super) fn accesses(&self) -> usize {
        let stop = self.stops.get(self.next_stop).copied();
        stop.unwrap_or(self.batch.len()) - self.at
    }

    /// The same, less one unless a wanted event follows: nothing may come after the last access, be it
    /// that the batch ends or that only unwanted slots are left.
    #[inline]
    pub(super) fn accesses_before_end(&self) -> usize {
        let may_end = !self.event_follows();
        self.accesses().saturating_sub(usize::from(may_end))
    }

    /// Whether the next slot that is no access is a wanted event.
    fn event_follows(&self) -> bool {
        let Some(&at) = self.stops.get(self.next_stop) else {
            return false;
        };
        let slot = Slot::new(self.batch.values[at], Key(self.batch.keys[at]));
        let what = other_event(slot, &mut { self.announced });
        what.is_some_and(|what| self.kinds.overlaps(Kinds::of(&what)))
    }

    /// Whether the whole batch was taken.
    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.at == self.batch.len()
    }

    /// The next slot as an event, if it is no access and is wanted; unwanted ones are skipped.
    pub(super) fn event(&mut self) -> Option<Event> {
        while self.stops.get(self.next_stop) == Some(&self.at) {
            if let Some(event) = self.stop() {
                return Some(event);
            }
        }
        None
    }

    /// Takes the next slot, which is no access; its event, if that is wanted.
    pub(super) fn stop(&mut self) -> Option<Event> {
        let at = self.at;
        self.at += 1;
        self.next_stop += 1;
        let slot = Slot::new(self.batch.values[at], Key(self.batch.keys[at]));
        let ticks = self.batch.ticks[at];
        let what = other_event(slot, &mut self.announced)?;
        self.kinds.overlaps(Kinds::of(&what)).then(|| Event {
            ticks,
            time: self.time_of(ticks),
            thread: self.index,
            what,
        })
    }

    /// The time of these recorded ticks.
    pub(super) fn time_of(&self, ticks: u64) -> Time {
        self.trace.scale.time(ticks)
    }

    /// Decodes the next batch when the current one was taken; false at the end.
    pub(super) fn refill(&mut self) -> bool {
        if !self.is_empty() {
            return true;
        }
        self.batch.clear();
        self.stops.clear();
        (self.at, self.next_stop) = (0, 0);
        loop {
            if let Some(decoder) = &mut self.decoder {
                decoder.fill(&mut self.batch, BATCH);
                if !self.batch.is_empty() {
                    break;
                }
            }
            if !self.next_block() {
                return false;
            }
        }
        let keys = self.batch.keys.iter().enumerate();
        let others = keys.filter(|(_, key)| access_kind(Key(**key).tag()).is_none());
        self.stops.extend(others.map(|(place, _)| place));
        true
    }

    fn next_block(&mut self) -> bool {
        let blocks = &self.trace.threads[self.thread].blocks;
        loop {
            if self.decoder.take().is_some_and(|d| d.is_damaged()) {
                self.damaged += 1;
            }
            let block = blocks.get(self.next_block);
            let Some(block) = block.filter(|_| self.trace.may_go_on()) else {
                return false;
            };
            self.next_block += 1;
            self.decoder = self.trace.decoder(block);
            if self.decoder.is_some() {
                return true;
            }
            self.damaged += 1;
        }
    }
}

/// Calls `each` with the events of `kinds`, none of them accesses, of the thread with this index,
/// in order. Decodes only blocks that hold such events.
pub(super) fn each_event(trace: &Trace, thread: usize, kinds: Kinds, mut each: impl FnMut(&Event)) {
    let known = &trace.threads[thread];
    let mut announced = None;
    let mut batch = Columns::default();
    for block in known.blocks.iter().take_while(|_| trace.may_go_on()) {
        let Some(mut decoder) = trace.decoder(block) else {
            continue;
        };
        if !may_hold(&decoder, kinds) {
            continue;
        }
        loop {
            batch.clear();
            decoder.fill(&mut batch, BATCH);
            if batch.is_empty() {
                break;
            }
            for (i, &key) in batch.keys.iter().enumerate() {
                let key = Key(key);
                if access_kind(key.tag()).is_some() {
                    continue;
                }
                let ticks = batch.ticks[i];
                if let Some(what) = other_event(Slot::new(batch.values[i], key), &mut announced)
                    && kinds.overlaps(Kinds::of(&what))
                {
                    each(&Event {
                        ticks,
                        time: trace.scale.time(ticks),
                        thread: known.index,
                        what,
                    });
                }
            }
        }
    }
}

/// Whether a block of which nothing has been decoded may have events of `kinds`.
pub(super) fn may_hold(decoder: &Decoder, kinds: Kinds) -> bool {
    if kinds.overlaps(Kinds::ACCESSES) {
        return true;
    }
    let mut holds = false;
    let known = decoder.keys(|key| holds |= may_be(key.tag(), kinds));
    holds || !known
}

/// Whether a slot with this tag may be an event of `kinds`, or a part of one.
const fn may_be(tag: u8, kinds: Kinds) -> bool {
    use crate::slot::tag;
    let kind = match tag {
        tag::SIZE | tag::ALLOCATE | tag::FREE => Kinds::HEAP,
        tag::THREAD_START | tag::THREAD_END => Kinds::THREADS,
        tag::SYNC => Kinds::SYNC,
        tag::MARK => Kinds::MARKS,
        _ => return false,
    };
    kinds.overlaps(kind)
}
