//! The unit of coherence and its arithmetic: 64 bytes for a CPU line, 4096 for
//! a page of a distributed shared memory. Granules up to 256 bytes have masks
//! with one bit a byte.

use crate::address::{Address, Span};
use core::fmt;

/// Bytes of a page of x86-64 Linux, the smallest that it maps and protects.
pub const PAGE: u64 = 4096;

/// [`PAGE`] as the length of something in our own address space.
pub const PAGE_SIZE: usize = PAGE as usize;

/// Bytes of a cache line of nearly every x86-64 CPU.
pub const LINE: u64 = Granule::LINE.bytes();

/// A coherence granule: a power of two from 8 to 65,536 bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Granule(u32);

/// A size that no coherence granule can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidGranule(pub u64);

impl fmt::Display for InvalidGranule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} bytes is no coherence granule: it must be a power of two from 8 to 65536",
            self.0
        )
    }
}

impl core::error::Error for InvalidGranule {}

impl Granule {
    /// The cache line of nearly every x86-64 CPU.
    pub const LINE: Self = Self(64);

    /// A granule of `bytes`.
    ///
    /// # Errors
    /// If `bytes` is not a power of two from 8 to 65,536.
    pub const fn new(bytes: u64) -> Result<Self, InvalidGranule> {
        if bytes.is_power_of_two() && bytes >= 8 && bytes <= 65_536 {
            Ok(Self(bytes as u32))
        } else {
            Err(InvalidGranule(bytes))
        }
    }

    /// Its size in bytes.
    pub const fn bytes(self) -> u64 {
        self.0 as u64
    }

    /// The first byte of the granule that holds `address`.
    pub const fn base(self, address: Address) -> Address {
        Address(address.0 & !(self.0 as u64 - 1))
    }

    /// The position of `address` within its granule.
    pub const fn offset(self, address: Address) -> u64 {
        address.0 & (self.0 as u64 - 1)
    }

    /// The bases of all granules that `span` touches, in order.
    pub fn bases(self, span: Span) -> impl Iterator<Item = Address> {
        let first = self.base(span.start).0;
        let last = self.base(Address(span.end().0.saturating_sub(1))).0;
        let count = if span.len == 0 {
            0
        } else {
            (last - first) / self.bytes() + 1
        };
        (0..count).map(move |i| Address(first + i * self.bytes()))
    }
}

/// Which bytes of a granule of at most 256 bytes: bit `i` is byte `i`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct ByteMask([u64; 4]);

impl ByteMask {
    /// No byte.
    pub const EMPTY: Self = Self([0; 4]);

    /// The largest granule that a mask can describe, in bytes.
    pub const BYTES: u64 = 256;

    /// `len` bytes from `start`; what lies beyond 256 bytes is cut off.
    pub fn range(start: u64, len: u64) -> Self {
        let mut words = [0u64; 4];
        let end = start.saturating_add(len).min(Self::BYTES);
        for (i, word) in words.iter_mut().enumerate() {
            let base = i as u64 * 64;
            let from = start.clamp(base, base + 64) - base;
            let to = end.clamp(base, base + 64) - base;
            if from < to {
                *word = (u64::MAX >> (64 - (to - from))) << from;
            }
        }
        Self(words)
    }

    /// The bytes of `span` that lie in the granule at `base`.
    pub fn of_span(granule: Granule, base: Address, span: Span) -> Self {
        let from = span.start.0.max(base.0);
        let to = span.end().0.min(base.0.saturating_add(granule.bytes()));
        if from < to {
            Self::range(from - base.0, to - from)
        } else {
            Self::EMPTY
        }
    }

    /// Whether no byte is set.
    pub const fn is_empty(self) -> bool {
        self.0[0] | self.0[1] | self.0[2] | self.0[3] == 0
    }

    /// Whether the two have a byte in common.
    pub const fn overlaps(self, other: Self) -> bool {
        !self.intersection(other).is_empty()
    }

    /// The bytes in both.
    #[must_use]
    pub const fn intersection(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        Self([a[0] & b[0], a[1] & b[1], a[2] & b[2], a[3] & b[3]])
    }

    /// The bytes in either.
    #[must_use]
    pub const fn union(self, other: Self) -> Self {
        let (a, b) = (self.0, other.0);
        Self([a[0] | b[0], a[1] | b[1], a[2] | b[2], a[3] | b[3]])
    }

    /// Whether byte `index` is set.
    pub const fn contains(self, index: u64) -> bool {
        index < Self::BYTES && self.0[(index / 64) as usize] >> (index % 64) & 1 == 1
    }

    /// How many bytes are set.
    pub const fn count(self) -> u32 {
        let w = self.0;
        w[0].count_ones() + w[1].count_ones() + w[2].count_ones() + w[3].count_ones()
    }

    /// The set bytes, ascending.
    pub fn iter(self) -> impl Iterator<Item = u64> {
        (0..Self::BYTES).filter(move |&i| self.contains(i))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_granule_is_a_power_of_two_in_range() {
        for bad in [0, 1, 4, 48, 65, 131_072, u64::MAX] {
            assert_eq!(Granule::new(bad), Err(InvalidGranule(bad)));
        }
        assert_eq!(Granule::new(4096).map(Granule::bytes), Ok(4096));
    }

    #[test]
    fn an_access_over_a_border_touches_both_lines() {
        let span = Span::new(Address(0x103c), 8);
        let bases: alloc::vec::Vec<_> = Granule::LINE.bases(span).collect();
        assert_eq!(bases, [Address(0x1000), Address(0x1040)]);
        let first = ByteMask::of_span(Granule::LINE, bases[0], span);
        let second = ByteMask::of_span(Granule::LINE, bases[1], span);
        assert_eq!(first, ByteMask::range(60, 4));
        assert_eq!(second, ByteMask::range(0, 4));
        assert!(first.count() == 4 && second.count() == 4);
    }

    #[test]
    fn byte_masks_agree_with_a_loop_over_bytes() {
        for start in [0, 1, 7, 60, 63, 64, 127, 200, 255, 256, 300] {
            for len in [0, 1, 8, 63, 64, 65, 128, 256] {
                let mask = ByteMask::range(start, len);
                for byte in 0..256 {
                    let wanted = byte >= start && byte < start + len;
                    assert_eq!(mask.contains(byte), wanted, "{start}+{len} at {byte}");
                }
            }
        }
    }
}
