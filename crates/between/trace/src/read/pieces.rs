//! A trace's events in either order, many accesses at once, for replays that cannot afford a call
//! for each access. The order is exactly that of [`super::Events`] and [`super::Parallel`]; tests
//! compare them.

use super::events::{Event, access_of};
use super::lane::Lane;
use super::turns::InParallel;
use super::{Filter, Kinds, Trace};
use crate::slot::{Key, Slot, access_kind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use sunder_access::{Kind, ThreadId, Time};

/// The next part of a trace.
#[derive(Debug)]
pub enum Piece<'a> {
    /// Accesses.
    Accesses(Turns<'a>),
    /// One event that is no access.
    Event(Event),
}

/// Accesses of threads that take turns: the first of each lane, in the order of the lanes, then the
/// second of each, and so on. With one lane: in their own order.
#[derive(Debug)]
pub struct Turns<'a> {
    lanes: &'a [Lane<'a>],
    parts: &'a [Part],
    rounds: usize,
    /// Whether the order is the parallel one, in which an access takes one unit of time.
    in_parallel: bool,
}

/// The start of a lane's accesses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    pub(super) lane: usize,
    pub(super) at: usize,
    /// The time of the first, in the parallel order.
    pub(super) time: u64,
}

/// The accesses of one thread in a piece, as columns of equal length.
#[derive(Clone, Copy, Debug)]
pub struct LanePart<'a> {
    /// The thread, by its index in the trace.
    pub thread: u32,
    /// See [`super::Thread::id`].
    pub id: ThreadId,
    /// The accessed addresses.
    pub addresses: &'a [u64],
    /// Width and kind, for [`Touch::of`].
    pub keys: &'a [u64],
    /// The recorded times, in ticks.
    pub ticks: &'a [u64],
}

/// Width and kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Touch {
    /// The width in bytes.
    pub width: u8,
    /// The kind.
    pub kind: Kind,
}

impl Touch {
    /// Width and kind of an access with this key.
    #[inline]
    pub const fn of(key: u64) -> Self {
        let key = Key(key);
        let kind = match access_kind(key.tag()) {
            Some((kind, _)) => kind,
            None => Kind::Read,
        };
        Self {
            width: Self::width_of(key.0),
            kind,
        }
    }

    /// The width alone, in bytes.
    #[inline]
    pub const fn width_of(key: u64) -> u8 {
        match Key(key).code() {
            0 => 1,
            width if width > 64 => 64,
            width => width,
        }
    }
}

impl<'a> Turns<'a> {
    pub(super) const fn new(
        lanes: &'a [Lane<'a>],
        parts: &'a [Part],
        rounds: usize,
        in_parallel: bool,
    ) -> Self {
        Self {
            lanes,
            parts,
            rounds,
            in_parallel,
        }
    }

    /// How many accesses each lane has.
    pub const fn rounds(&self) -> usize {
        self.rounds
    }

    /// How many lanes there are.
    pub const fn lanes(&self) -> usize {
        self.parts.len()
    }

    /// The lane with this index, below [`Turns::lanes`].
    #[inline]
    pub fn lane(&self, place: usize) -> LanePart<'a> {
        let Part { lane, at, .. } = self.parts[place];
        let lane = &self.lanes[lane];
        let part = at..at + self.rounds;
        LanePart {
            thread: lane.index,
            id: lane.id,
            addresses: &lane.batch.values[part.clone()],
            keys: &lane.batch.keys[part.clone()],
            ticks: &lane.batch.ticks[part],
        }
    }

    /// The time of an access: of the lane at `place`, in round `round`. Both must exist.
    #[inline]
    pub fn time(&self, place: usize, round: usize) -> Time {
        let part = self.parts[place];
        if self.in_parallel {
            Time(part.time.saturating_add(round as u64))
        } else {
            let lane = &self.lanes[part.lane];
            lane.time_of(lane.batch.ticks[part.at + round])
        }
    }

    /// The access of the lane at `place` in round `round`, as an event.
    pub fn event(&self, place: usize, round: usize) -> Option<Event> {
        let part = self.parts.get(place)?;
        let lane = self.lanes.get(part.lane)?;
        let at = part.at + round;
        let ticks = *lane.batch.ticks.get(at)?;
        let time = self.time(place, round);
        let slot = Slot::new(lane.batch.values[at], Key(lane.batch.keys[at]));
        Some(Event {
            ticks,
            time,
            thread: lane.index,
            what: access_of(slot, lane.id, time)?,
        })
    }

    /// All accesses as events, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let places = 0..self.lanes();
        let one = move |round| places.clone().filter_map(move |at| self.event(at, round));
        (0..self.rounds).flat_map(one)
    }
}

/// All accesses of a trace, and its events of some kinds. See the module's head.
#[derive(Debug)]
pub struct Pieces<'t>(Order<'t>);

#[derive(Debug)]
enum Order<'t> {
    Recorded(Recorded<'t>),
    Parallel(InParallel<'t>),
}

impl<'t> Pieces<'t> {
    /// All accesses, and the other events of `kinds`, in the recorded order.
    pub(super) fn recorded(trace: &'t Trace, kinds: Kinds) -> Self {
        Self(Order::Recorded(Recorded::new(trace, kinds)))
    }

    /// The same, as if each thread had a CPU of its own.
    pub(super) fn parallel(trace: &'t Trace, kinds: Kinds) -> Self {
        let kinds = kinds.with(Kinds::ACCESSES);
        let filter = Filter {
            kinds,
            ..Filter::default()
        };
        Self(Order::Parallel(InParallel::new(trace, filter)))
    }

    /// The next piece; `None` at the end.
    #[expect(clippy::should_implement_trait, reason = "it lends what it gives")]
    pub fn next(&mut self) -> Option<Piece<'_>> {
        match &mut self.0 {
            Order::Recorded(order) => order.next(),
            Order::Parallel(order) => order.next(),
        }
    }

    /// Blocks of the trace that could not be read so far.
    pub fn damaged_blocks(&self) -> u64 {
        match &self.0 {
            Order::Recorded(order) => order.lanes.iter().map(|lane| lane.damaged).sum(),
            Order::Parallel(order) => order.damaged_blocks(),
        }
    }
}

/// The same order as [`super::Events`], many accesses of one thread at once.
#[derive(Debug)]
struct Recorded<'t> {
    lanes: Vec<Lane<'t>>,
    /// All threads but the current one, by the time of their next slot.
    waiting: BinaryHeap<Reverse<(u64, usize)>>,
    /// The current thread, and the time until which its slots come next.
    current: Option<usize>,
    until: (u64, usize),
    part: [Part; 1],
}

impl<'t> Recorded<'t> {
    fn new(trace: &'t Trace, kinds: Kinds) -> Self {
        let mut lanes = Vec::new();
        let mut waiting = BinaryHeap::new();
        for place in 0..trace.threads().len() {
            let lane = Lane::new(trace, place, kinds);
            if let Some(first) = lane.begins() {
                waiting.push(Reverse((first, lanes.len())));
                lanes.push(lane);
            }
        }
        Self {
            lanes,
            waiting,
            current: None,
            until: (0, 0),
            part: [Part {
                lane: 0,
                at: 0,
                time: 0,
            }],
        }
    }

    fn next(&mut self) -> Option<Piece<'_>> {
        loop {
            let Some(head) = self.current else {
                self.turn()?;
                continue;
            };
            let lane = &mut self.lanes[head];
            if !lane.refill() {
                self.current = None;
                continue;
            }
            let ticks = lane.batch.ticks[lane.at];
            if (ticks, head) > self.until {
                self.change(ticks, head);
                continue;
            }
            let accesses = lane.accesses();
            if accesses == 0 {
                if let Some(event) = lane.stop() {
                    return Some(Piece::Event(event));
                }
                continue;
            }
            let until = self.until;
            let ahead = &lane.batch.ticks[lane.at..lane.at + accesses];
            let rounds = run(ahead, |ticks| (ticks, head) <= until);
            self.part[0].lane = head;
            self.part[0].at = lane.at;
            lane.at += rounds;
            let turns = Turns::new(&self.lanes, &self.part, rounds, false);
            return Some(Piece::Accesses(turns));
        }
    }

    /// Makes the first waiting thread the current one. `head`, the current one until now, waits;
    /// its next slot is at `ticks`.
    fn change(&mut self, ticks: u64, head: usize) {
        let Some(mut first) = self.waiting.peek_mut() else {
            return;
        };
        let Reverse((_, next)) = std::mem::replace(&mut *first, Reverse((ticks, head)));
        drop(first);
        self.current = Some(next);
        let next = self.waiting.peek();
        self.until = next.map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
    }

    /// Makes the first waiting thread the current one.
    fn turn(&mut self) -> Option<()> {
        let Reverse((_, head)) = self.waiting.pop()?;
        self.current = Some(head);
        let next = self.waiting.peek();
        self.until = next.map_or((u64::MAX, usize::MAX), |Reverse(next)| *next);
        Some(())
    }
}

/// For how many of the first of `ticks`, which ascend, `holds` is true: mostly few.
fn run(ticks: &[u64], holds: impl Fn(u64) -> bool) -> usize {
    let mut step = 4;
    loop {
        match ticks.get(step - 1) {
            Some(&last) if holds(last) => step *= 2,
            _ => break,
        }
    }
    let known = if step > 4 { step / 2 } else { 0 };
    let rest = &ticks[known..step.min(ticks.len())];
    if step == 4 {
        return rest.iter().take_while(|t| holds(**t)).count();
    }
    known + rest.partition_point(|&t| holds(t))
}
