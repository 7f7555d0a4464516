//! When something happened, in little space: a bit set of coarse time slots for the prediction,
//! and sums by time slot for the picture over time. Both begin with slots of about a
//! millisecond, whose length doubles when the run outgrows 64 of them.

use sunder_access::Time;

/// Number of slots.
const SLOTS: u64 = 64;

/// Logarithm of the shortest slot: 2^20 ns is about 1 ms, half of Plastic's epoch.
const FIRST_SHIFT: u8 = 20;

/// The time slots of a run in which a thread was active.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slots {
    bits: u64,
    shift: u8,
}

impl Default for Slots {
    fn default() -> Self {
        Self {
            bits: 0,
            shift: FIRST_SHIFT,
        }
    }
}

impl Slots {
    /// Marks the slot at `since_origin` ns after the beginning of the run as active.
    pub fn mark(&mut self, since_origin: u64) {
        while since_origin >> self.shift >= SLOTS {
            *self = self.widened();
        }
        self.bits |= 1 << (since_origin >> self.shift);
    }

    fn widened(self) -> Self {
        let mut bits = 0;
        for i in 0..SLOTS / 2 {
            bits |= u64::from(self.bits >> (2 * i) & 3 != 0) << i;
        }
        Self {
            bits,
            shift: self.shift + 1,
        }
    }

    /// The number of slots in which both were active, and its share of `self`'s active slots.
    pub fn common(self, other: Self) -> (u32, f64) {
        let (mut a, mut b) = (self, other);
        while a.shift < b.shift {
            a = a.widened();
        }
        while b.shift < a.shift {
            b = b.widened();
        }
        let common = (a.bits & b.bits).count_ones();
        let own = a.bits.count_ones().max(1);
        (common, f64::from(common) / f64::from(own))
    }
}

/// A quantity over the time of a run, in equal slots from its beginning.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeline {
    /// The beginning of the first slot.
    pub origin: Time,
    /// Length of a slot in ns; a power of two.
    pub slot_ns: u64,
    /// The quantity by slot; trailing empty slots are left out.
    pub amounts: Vec<f64>,
}

impl Timeline {
    pub(crate) const fn new(origin: Time) -> Self {
        Self {
            origin,
            slot_ns: 1 << FIRST_SHIFT,
            amounts: Vec::new(),
        }
    }

    /// Adds `amount` for what happened between the times `from` and `to`, spread evenly.
    pub(crate) fn add(&mut self, from: u64, to: u64, amount: f64) {
        let since = |time: u64| time.saturating_sub(self.origin.0);
        let (from, to) = (since(from), since(to));
        while to / self.slot_ns >= SLOTS {
            let halves = self.amounts.chunks(2).map(|c| c.iter().sum());
            self.amounts = halves.collect();
            self.slot_ns *= 2;
        }
        let slot = (to / self.slot_ns) as usize;
        if self.amounts.len() <= slot {
            self.amounts.resize(slot + 1, 0.0);
        }
        let place = |since: u64| since as f64 / self.slot_ns as f64;
        let (begin, end) = (place(from), place(to));
        if from < to {
            spread(&mut self.amounts, begin, end, amount);
        } else {
            self.amounts[slot] += amount;
        }
    }

    pub(crate) fn scale(&mut self, factor: f64) {
        for amount in &mut self.amounts {
            *amount *= factor;
        }
    }

    /// The sum over all slots.
    pub fn total(&self) -> f64 {
        self.amounts.iter().sum()
    }

    /// The amounts in `count` equal slices from `from` to `to`; the amount of a slot is spread
    /// evenly over it. Empty if `to` is not after `from`.
    pub fn slices(&self, from: Time, to: Time, count: usize) -> Vec<f64> {
        let length = to.nanoseconds_since(from) as f64;
        if count == 0 || length == 0.0 {
            return Vec::new();
        }
        let mut slices = vec![0.0; count];
        let slot_length = self.slot_ns as f64 / length * count as f64;
        let offset = (self.origin.0 as f64 - from.0 as f64) / length * count as f64;
        for (i, amount) in self.amounts.iter().enumerate() {
            let begin = offset + i as f64 * slot_length;
            spread(&mut slices, begin, begin + slot_length, *amount);
        }
        slices
    }
}

/// Adds `amount` to the part of `slices` from `begin` to `end`. What lies outside is added to
/// the nearest slice, so that the sum is kept.
fn spread(slices: &mut [f64], begin: f64, end: f64, amount: f64) {
    let last = slices.len() as f64;
    let (from, to) = (begin.clamp(0.0, last), end.clamp(0.0, last));
    if to <= from {
        let nearest = if begin < 0.0 { 0 } else { slices.len() - 1 };
        slices[nearest] += amount;
        return;
    }
    for (i, slice) in slices.iter_mut().enumerate() {
        let overlap = (to.min(i as f64 + 1.0) - from.max(i as f64)).max(0.0);
        *slice += amount * overlap / (to - from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1 << FIRST_SHIFT;

    #[test]
    fn slots_widen_and_still_know_what_was_simultaneous() {
        let (mut a, mut b) = (Slots::default(), Slots::default());
        for ms in 0..10 {
            a.mark(ms * MS);
            b.mark((ms + 5) * MS);
        }
        assert_eq!(a.common(b), (5, 0.5));
        b.mark(100 * MS);
        // Slots have doubled: a has 0-9 (5 slots), b 5-14 (slots 2-7) and 100.
        assert_eq!(a.common(b), (3, 0.6));
    }

    #[test]
    fn a_timeline_keeps_its_sum_while_it_widens() {
        let mut line = Timeline::new(Time(1000));
        for i in 0..1000 {
            line.add(1000 + i * MS, 1000 + i * MS, 2.0);
        }
        assert!(line.amounts.len() <= SLOTS as usize);
        assert!((line.total() - 2000.0).abs() < 1e-9);
        let slices = line.slices(Time(1000), Time(1000 + 1000 * MS), 10);
        assert!((slices.iter().sum::<f64>() - 2000.0).abs() < 1e-6);
        assert!(
            slices.iter().all(|s| (150.0..250.0).contains(s)),
            "{slices:?}"
        );
    }

    #[test]
    fn changes_spread_over_a_long_time_are_no_peak() {
        // The same number of samples takes longer when samples become rarer.
        let mut line = Timeline::new(Time(0));
        line.add(0, 2 * MS, 2.0);
        line.add(2 * MS, 12 * MS, 10.0);
        let slices = line.slices(Time(0), Time(12 * MS), 12);
        assert!(slices.iter().all(|s| (s - 1.0).abs() < 1e-9), "{slices:?}");
    }
}
