//! A part of memory to which a replay can be confined. With infinite caches lines do not evict
//! each other, so the misses on the lines of some objects are found by replaying the accesses
//! to these lines alone.

use super::order::Watch;
use sunder_access::{Address, Span};

/// Parts that are collected before they are joined.
const MANY: usize = 1 << 16;

/// A region of more units gets no table for quick look-ups: it would not fit a cache.
const MOST_UNITS: u64 = 1 << 18;

/// A set of whole units of memory.
#[derive(Clone, Debug)]
pub struct Region {
    /// Bytes of a unit, a power of two.
    unit: u64,
    /// First and last unit of each part; after `join` they are ascending and do not touch.
    parts: Vec<(u64, u64)>,
    /// The number of parts after the last `join`.
    joined: usize,
}

impl Region {
    /// An empty region with units of `unit` bytes, a power of two.
    pub const fn new(unit: u64) -> Self {
        Self {
            unit,
            parts: Vec::new(),
            joined: 0,
        }
    }

    /// Adds the units that hold any byte of `span`.
    pub fn add(&mut self, span: Span) {
        let last = span.start.0.saturating_add(span.len.saturating_sub(1));
        let part = (span.start.0 / self.unit, last / self.unit);
        if self.parts.last() == Some(&part) {
            return;
        }
        self.parts.push(part);
        if self.parts.len() > MANY.max(self.joined * 2) {
            self.join();
        }
    }

    /// Sorts and joins the parts. Must be called after the last [`Region::add`].
    pub fn join(&mut self) {
        self.parts.sort_unstable();
        let mut joined: Vec<(u64, u64)> = Vec::new();
        for &(first, last) in &self.parts {
            match joined.last_mut() {
                Some(before) if first <= before.1.saturating_add(1) => {
                    before.1 = before.1.max(last)
                }
                _ => joined.push((first, last)),
            }
        }
        self.joined = joined.len();
        self.parts = joined;
    }

    /// How many units there are.
    pub fn units(&self) -> u64 {
        let units = self.parts.iter().map(|(first, last)| last - first + 1);
        units.fold(0, u64::saturating_add)
    }

    /// Bytes of a unit.
    pub const fn unit(&self) -> u64 {
        self.unit
    }

    /// A filter that separates accesses that may touch the region from most others; `None` if
    /// the region is too large.
    pub fn watch(&self) -> Option<Watch> {
        if self.units() > MOST_UNITS {
            return None;
        }
        let units = self.parts.iter().flat_map(|&(first, last)| first..=last);
        let bases: Vec<Address> = units.map(|unit| Address(unit * self.unit)).collect();
        Some(Watch::new(bases.into_iter(), self.unit))
    }

    #[inline]
    fn holds(&self, unit: u64) -> bool {
        let after = self.parts.partition_point(|part| part.0 <= unit);
        after > 0 && unit <= self.parts[after - 1].1
    }

    /// Calls `each` with the parts of an access that lie in the region.
    ///
    /// # Errors
    /// The first error of `each`.
    #[inline]
    pub fn parts<E>(
        &self,
        address: Address,
        width: u32,
        mut each: impl FnMut(Address, u32) -> Result<(), E>,
    ) -> Result<(), E> {
        let last = address.0.saturating_add(u64::from(width) - 1);
        let units = (address.0 / self.unit, last / self.unit);
        if units.0 == units.1 {
            if self.holds(units.0) {
                each(address, width)?;
            }
            return Ok(());
        }
        for unit in units.0..=units.1 {
            if self.holds(unit) {
                let start = address.0.max(unit * self.unit);
                let end = last.min(unit * self.unit + (self.unit - 1));
                each(Address(start), (end - start) as u32 + 1)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn of_an_access_comes_back_what_lies_in_the_units(
            spans in prop::collection::vec((0..4000u64, 0..600u64), 0..12),
            at in 0..4200u64,
            width in 1..=64u32,
        ) {
            let mut region = Region::new(256);
            for &(start, len) in &spans {
                region.add(Span::new(Address(start), len));
            }
            region.join();
            let in_unit = |byte: u64| spans.iter().any(|&(start, len)| {
                let last = start + len.saturating_sub(1);
                (start / 256..=last / 256).contains(&(byte / 256))
            });
            let wanted: Vec<u64> = (at..at + u64::from(width)).filter(|&b| in_unit(b)).collect();
            let mut seen = Vec::new();
            region.parts(Address(at), width, |start, width| {
                seen.extend(start.0..start.0 + u64::from(width));
                Ok::<(), ()>(())
            }).unwrap();
            prop_assert_eq!(seen, wanted);
        }
    }
}
