//! The parallel order (`parallel`), many accesses at once: between two events that order threads,
//! all threads that can go on make one access each in turn, so a whole number of such rounds is one
//! piece.

use crate::read::event::Event;
use crate::read::filter::Filter;
use crate::read::lane::Lane;
use crate::read::piece::{Part, Piece, Turns};
use crate::read::trace::Trace;
use crate::read::waits::{ORDER, Waits};
use sunder_access::Time;

/// Pieces in the parallel order. See the module's head.
#[derive(Debug)]
pub(super) struct InParallel<'t> {
    filter: Filter,
    waits: Waits,
    lanes: Vec<Lane<'t>>,
    /// The parts of the piece that was given last.
    parts: Vec<Part>,
    /// How many threads have their turn before one that comes to another event or to its end: until
    /// then there is no round of all.
    singles: usize,
}

impl<'t> InParallel<'t> {
    pub(super) fn new(trace: &'t Trace, filter: Filter, canonical: bool) -> Self {
        let mut waits = Waits::new(trace, &filter, canonical);
        let kinds = filter.kinds.with(ORDER);
        let mut start = None::<Time>;
        let threads = trace.threads().iter().enumerate();
        let wanted = threads.filter(|(_, thread)| filter.wants_thread(thread.index));
        let mut lanes: Vec<Lane<'t>> = Vec::new();
        for ((place, _), waiter) in wanted.zip(&mut waits.threads) {
            let mut lane = Lane::new(trace, place, kinds);
            waiter.next = next_event(&mut lane);
            let first = match &waiter.next {
                Some(event) => Some(event.time),
                None => lane.time(),
            };
            if let Some(first) = first {
                start = Some(start.map_or(first, |s| s.min(first)));
            }
            lanes.push(lane);
        }
        waits.start = start.unwrap_or_default();
        Self {
            filter,
            waits,
            lanes,
            parts: Vec::new(),
            singles: 0,
        }
    }

    pub(super) fn damaged_blocks(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.damaged).sum()
    }

    pub(super) fn next(&mut self) -> Option<Piece<'_>> {
        // The previous piece has been read, so its slots can be skipped.
        for taken in 0..self.parts.len() {
            let number = self.parts[taken].lane;
            if self.lanes[number].accesses() == 0 {
                self.advance(number);
            }
        }
        self.parts.clear();
        loop {
            if self.singles == 0 {
                let rounds = self.rounds();
                if rounds > 0 {
                    self.take_rounds(rounds);
                    return Some(self.piece(rounds));
                }
            }
            self.singles = self.singles.saturating_sub(1);
            let number = self.waits.turn()?;
            if let Some(event) = self.waits.threads[number].next {
                if let Some(event) = self.event(number, event) {
                    return Some(Piece::Event(event));
                }
            } else if !self.lanes[number].is_empty() {
                self.take_one(number);
                return Some(self.piece(1));
            }
        }
    }

    /// How many rounds all threads that can go on make before one of them comes to another event or
    /// to its end. If one of them is there already, the threads before it have one access each, and
    /// their turns need no count of all again.
    fn rounds(&mut self) -> usize {
        let mut least = usize::MAX;
        for (place, &number) in self.waits.ready.iter().enumerate() {
            let accesses = match self.waits.threads[number].next {
                Some(_) => 0,
                None => self.lanes[number].accesses_before_end(),
            };
            if accesses == 0 {
                self.singles = place + 1;
                return 0;
            }
            least = least.min(accesses);
        }
        if self.waits.ready.is_empty() {
            0
        } else {
            least
        }
    }

    fn take_rounds(&mut self, rounds: usize) {
        for place in 0..self.waits.ready.len() {
            let number = self.waits.ready[place];
            self.take(number, rounds);
        }
    }

    /// Gives one access of thread `number`, whose turn it is.
    fn take_one(&mut self, number: usize) {
        self.take(number, 1);
        self.waits.ready.push_back(number);
    }

    fn take(&mut self, number: usize, count: usize) {
        let (lane, waiter) = (&mut self.lanes[number], &mut self.waits.threads[number]);
        self.parts.push(Part {
            lane: number,
            at: lane.at,
            time: self.waits.start.0.saturating_add(waiter.clock),
        });
        lane.at += count;
        waiter.clock += count as u64;
    }

    fn piece(&self, rounds: usize) -> Piece<'_> {
        Piece::Accesses(Turns::new(&self.lanes, &self.parts, rounds, true))
    }

    /// Gives `event`, the next of thread `number`, if it need not wait and is wanted.
    fn event(&mut self, number: usize, mut event: Event) -> Option<Event> {
        if !self.waits.deliver(number, &mut event) {
            return None;
        }
        self.advance(number);
        self.waits.delivered(number, &event);
        self.filter.wants(&event.what).then_some(event)
    }

    /// Reads the next event of thread `number`; the end of the thread wakes others.
    fn advance(&mut self, number: usize) {
        let lane = &mut self.lanes[number];
        let next = next_event(lane);
        self.waits.threads[number].next = next;
        if next.is_none() && lane.is_empty() {
            self.waits.finish(number);
        }
    }
}

/// The next slot of `lane` as an event; `None` if it is an access, or at the end.
fn next_event(lane: &mut Lane<'_>) -> Option<Event> {
    loop {
        if let Some(event) = lane.event() {
            return Some(event);
        }
        if !lane.is_empty() || !lane.refill() {
            return None;
        }
    }
}
