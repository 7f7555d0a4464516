//! The events of a trace one by one, in any of the orders. For passes that need few of them:
//! accesses to granules that are not watched are skipped before an event is made of them.

use super::machine::Machine;
use crate::options::Order;
use crate::progress::Reading;
use sunder_access::{Address, Time};
use sunder_trace::read::{Event, Kinds, LanePart, Piece, Pieces, Touch, Trace, Turns};

/// All accesses of a trace, and its events of `kinds`, in one of the orders.
pub fn pieces(trace: &Trace, order: Order, kinds: Kinds) -> Pieces<'_> {
    match order {
        Order::Recorded => trace.pieces(kinds),
        Order::Parallel => trace.pieces_in_parallel(kinds),
        Order::Canonical => trace.pieces_in_canonical_order(kinds),
    }
}

/// The events of a trace in one of the orders.
pub struct Ordered<'t> {
    pieces: Pieces<'t>,
    reading: Reading,
    watch: Option<Watch>,
    /// The watched accesses of the current piece, by round and lane.
    hits: Vec<(usize, usize)>,
    /// The next events, in reverse.
    coming: Vec<Event>,
    span: Option<(Time, Time)>,
}

impl<'t> Ordered<'t> {
    /// The accesses that `watch` may contain (all if there is none), and the other events of
    /// `kinds`.
    pub fn new(trace: &'t Trace, machine: &Machine, kinds: Kinds, watch: Option<Watch>) -> Self {
        Self {
            pieces: pieces(trace, machine.order, kinds),
            reading: machine.progress.reading(trace),
            watch,
            hits: Vec::new(),
            coming: Vec::new(),
            span: None,
        }
    }

    /// The times of the first and the last event so far, including those that were skipped.
    pub const fn span(&self) -> Option<(Time, Time)> {
        self.span
    }

    fn saw(&mut self, first: Time, last: Time) {
        self.span = Some((self.span.map_or(first, |span| span.0), last));
    }

    /// Reads pieces until one has an event to return.
    fn look(&mut self) -> Option<()> {
        while self.coming.is_empty() {
            match self.pieces.next()? {
                Piece::Event(event) => {
                    self.coming.push(event);
                    self.saw(event.time, event.time);
                }
                Piece::Accesses(turns) => {
                    self.reading.add(turns.lanes() * turns.rounds());
                    let (lane, round) = (turns.lanes() - 1, turns.rounds() - 1);
                    let ends = (turns.time(0, 0), turns.time(lane, round));
                    match &self.watch {
                        Some(watch) => {
                            watch.find(&turns, &mut self.hits);
                            let hits = self.hits.iter().rev();
                            let events = hits.filter_map(|&(round, lane)| turns.event(lane, round));
                            self.coming.extend(events);
                        }
                        None => {
                            self.coming.extend(turns.events());
                            self.coming.reverse();
                        }
                    }
                    self.saw(ends.0, ends.1);
                }
            }
        }
        Some(())
    }
}

impl Iterator for Ordered<'_> {
    type Item = Event;

    #[inline]
    fn next(&mut self) -> Option<Event> {
        if self.coming.is_empty() {
            self.look()?;
        }
        self.coming.pop()
    }
}

/// Rounds that are filtered together: as many as a word has bits.
const ROUNDS: usize = 64;

/// Bits of the set for each watched granule: at most one in sixteen is set.
const SPARSE: usize = 16;

/// The smallest and the largest number of bits: they fit the first and the second cache.
const FEWEST: usize = 1 << 15;
const MOST: usize = 1 << 22;

/// A set of granules that is quick to ask. It may contain granules that were not added, and
/// never lacks one that was.
pub struct Watch {
    bits: Box<[u64]>,
    /// How far a hash is shifted right to give a bit's number.
    shift: u32,
    granule_bits: u32,
}

/// 2^64 divided by the golden ratio (Knuth, volume 3, section 6.4).
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

impl Watch {
    /// The granules of `granule` bytes, a power of two, that begin at `bases`.
    pub fn new(bases: impl ExactSizeIterator<Item = Address>, granule: u64) -> Self {
        let count = bases.len().saturating_mul(SPARSE);
        let count = count.clamp(FEWEST, MOST).next_power_of_two();
        let mut new = Self {
            bits: vec![0; count / 64].into(),
            shift: 64 - count.trailing_zeros(),
            granule_bits: granule.trailing_zeros(),
        };
        for base in bases {
            let bit = new.bit(base.0 >> new.granule_bits);
            new.bits[bit / 64] |= 1 << (bit % 64);
        }
        new
    }

    #[inline]
    const fn bit(&self, number: u64) -> usize {
        (number.wrapping_mul(GOLDEN) >> self.shift) as usize
    }

    /// Whether an access may touch a granule of the set; always true for one that touches two
    /// granules.
    #[inline]
    fn may_hold(&self, address: u64, key: u64) -> bool {
        let last = address.wrapping_add(u64::from(Touch::width_of(key)) - 1);
        let number = address >> self.granule_bits;
        let bit = self.bit(number);
        let is_set = self.bits[bit / 64] >> (bit % 64) & 1 != 0;
        is_set | (number != last >> self.granule_bits)
    }

    /// Writes the accesses among `turns` that may touch a granule of the set into `hits`, in
    /// order.
    pub fn find(&self, turns: &Turns<'_>, hits: &mut Vec<(usize, usize)>) {
        hits.clear();
        if turns.lanes() == 1 {
            // In the recorded order there is one lane, and a piece may be short.
            let lane = turns.lane(0);
            let accesses = lane.addresses.iter().zip(lane.keys).enumerate();
            let watched = accesses.filter(|(_, (address, key))| self.may_hold(**address, **key));
            hits.extend(watched.map(|(round, _)| (round, 0)));
            return;
        }
        let lanes: Vec<LanePart<'_>> = (0..turns.lanes()).map(|p| turns.lane(p)).collect();
        let mut seen: Vec<u64> = Vec::with_capacity(lanes.len());
        // Takes `ROUNDS` rounds at a time: filters them lane by lane, and then returns the
        // accesses in the order of the turns.
        for first in (0..turns.rounds()).step_by(ROUNDS) {
            let last = (first + ROUNDS).min(turns.rounds());
            seen.clear();
            for lane in &lanes {
                let keys = &lane.keys[first..last];
                let accesses = lane.addresses[first..last].iter().zip(keys);
                let bits = accesses.enumerate().fold(0, |bits, (i, (&address, &key))| {
                    bits | u64::from(self.may_hold(address, key)) << i
                });
                seen.push(bits);
            }
            let mut rounds = seen.iter().fold(0, |all, bits| all | bits);
            while rounds != 0 {
                let i = rounds.trailing_zeros() as usize;
                rounds &= rounds - 1;
                let here = seen.iter().enumerate();
                let here = here.filter(|(_, bits)| **bits >> i & 1 != 0);
                hits.extend(here.map(|(place, _)| (first + i, place)));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sunder_trace::slot::{Key, tag};

    proptest! {
        #[test]
        fn no_access_to_what_is_watched_is_left_out(
            bases in prop::collection::vec(0..1u64 << 40, 0..50),
            at in any::<prop::sample::Index>(),
            before in 0..8u64,
            width in 1..=64u8,
        ) {
            let bases: Vec<Address> = bases.iter().map(|n| Address(n * 64)).collect();
            let watch = Watch::new(bases.iter().copied(), 64);
            let key = Key::new(tag::READ, width, 0).0;
            if !bases.is_empty() {
                let base = at.get(&bases).0;
                prop_assert!(watch.may_hold(base + 8, key));
                // An access that begins before the granule and reaches into it.
                if before > 0 && u64::from(width) > before {
                    prop_assert!(watch.may_hold(base.wrapping_sub(before), key));
                }
            } else {
                prop_assert!(!watch.may_hold(0, Key::new(tag::READ, 8, 0).0));
            }
        }
    }
}
