//! A piece of a trace: many accesses at once, or one other event. Made by both orders of
//! [`super::pieces`], and read by replays.

use super::event::{Event, access_event};
use super::lane::Lane;
use crate::slot::{Key, Slot, access_kind};
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
            what: access_event(slot, lane.id, time)?,
        })
    }

    /// All accesses as events, in order.
    pub fn events(&self) -> impl Iterator<Item = Event> + '_ {
        let places = 0..self.lanes();
        let one = move |round| places.clone().filter_map(move |at| self.event(at, round));
        (0..self.rounds).flat_map(one)
    }
}
