//! The events of all threads, merged by time. One block of each living thread is in memory; a
//! thread's first block is read when the merge reaches its time.

use super::event::{Announced, Event, access_event, other_event};
use super::filter::Filter;
use super::lane::may_hold;
use super::trace::Trace;
use crate::codec::decode::Decoder;
use crate::slot::Slot;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use sunder_access::ThreadId;

/// One thread's position in its blocks.
#[derive(Debug)]
struct Head {
    /// Index in `Trace::threads`.
    thread: usize,
    index: u32,
    id: ThreadId,
    /// Index of the block after the current one.
    next_block: usize,
    decoder: Option<Decoder>,
    /// The next slot, with its ticks.
    next: Option<(u64, Slot)>,
    /// Size, call stack and code of the allocation that follows.
    announced: Option<Announced>,
}

/// The events of a trace, in the order of time. See [`Trace::events`].
#[derive(Debug)]
pub struct Events<'t> {
    trace: &'t Trace,
    filter: Filter,
    heads: Vec<Head>,
    /// All threads but the current one, by the time of their next slot.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The current thread, and the time until which its slots come next.
    current: Option<usize>,
    until: (u64, usize),
    damaged: u64,
}

impl<'t> Events<'t> {
    pub(super) fn new(trace: &'t Trace, filter: Filter) -> Self {
        let mut heads = Vec::new();
        let mut waiting = BinaryHeap::new();
        for (thread, known) in trace.threads.iter().enumerate() {
            let Some(first) = known.blocks.first() else {
                continue;
            };
            if filter.wants_thread(known.index) {
                waiting.push(Reverse((first.header.first, heads.len())));
                heads.push(Head {
                    thread,
                    index: known.index,
                    id: known.id,
                    next_block: 0,
                    decoder: None,
                    next: None,
                    announced: None,
                });
            }
        }
        Self {
            trace,
            filter,
            heads,
            waiting,
            current: None,
            until: (0, 0),
            damaged: 0,
        }
    }

    /// How many blocks were found damaged so far; all or the rest of their events are missing.
    pub const fn damaged_blocks(&self) -> u64 {
        self.damaged
    }

    /// Moves a thread to its next slot; false at its end.
    #[inline]
    fn advance(&mut self, head: usize) -> bool {
        let at = &mut self.heads[head];
        if let Some(decoder) = &mut at.decoder {
            at.next = decoder.next_slot();
            if at.next.is_some() {
                return true;
            }
        }
        self.next_block(head)
    }

    fn next_block(&mut self, head: usize) -> bool {
        let at = &mut self.heads[head];
        let blocks = &self.trace.threads[at.thread].blocks;
        loop {
            if at.decoder.take().is_some_and(|d| d.is_damaged()) {
                self.damaged += 1;
            }
            let block = blocks.get(at.next_block);
            let Some(block) = block.filter(|_| self.trace.may_go_on()) else {
                at.next = None;
                return false;
            };
            at.next_block += 1;
            at.decoder = self.trace.decoder(block);
            if at
                .decoder
                .as_ref()
                .is_some_and(|d| !may_hold(d, self.filter.kinds))
            {
                // Most blocks hold only accesses, so many blocks are skipped here.
                at.decoder = None;
                continue;
            }
            match &mut at.decoder {
                Some(decoder) => {
                    at.next = decoder.next_slot();
                    if at.next.is_some() {
                        return true;
                    }
                }
                None => self.damaged += 1,
            }
        }
    }

    /// The next slot of all threads.
    #[inline]
    fn next_slot(&mut self) -> Option<(usize, u64, Slot)> {
        loop {
            if let Some(head) = self.current
                && let Some((ticks, slot)) = self.heads[head].next
            {
                if (ticks, head) <= self.until {
                    if !self.advance(head) {
                        self.current = None;
                    }
                    return Some((head, ticks, slot));
                }
                self.waiting.push(Reverse((ticks, head)));
            }
            let Reverse((_, head)) = self.waiting.pop()?;
            let ready = self.heads[head].next.is_some() || self.advance(head);
            self.current = ready.then_some(head);
            let next = self.waiting.peek();
            self.until = next.map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
        }
    }

    #[inline]
    fn event(&mut self, head: usize, ticks: u64, slot: Slot) -> Option<Event> {
        let at = &mut self.heads[head];
        let time = self.trace.scale.time(ticks);
        let what = match access_event(slot, at.id, time) {
            Some(access) => access,
            None => other_event(slot, &mut at.announced)?,
        };
        Some(Event {
            ticks,
            time,
            thread: at.index,
            what,
        })
    }
}

impl Iterator for Events<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        loop {
            let (head, ticks, slot) = self.next_slot()?;
            if let Some(event) = self.event(head, ticks, slot)
                && self.filter.wants(&event.what)
            {
                return Some(event);
            }
        }
    }
}
