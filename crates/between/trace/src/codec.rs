//! How the slots of one thread become a block's payload, and how they are restored.
//!
//! Programs run in loops: the same keys follow each other, and each key's values advance by a
//! stride. So each key predicts its successor and its next value, and only wrong predictions are
//! stored, as a count of right ones and a correction. There are five columns, each a sequence of
//! numbers of variable length, compressed together by Zstandard; `docs/design/trace.md` has the
//! details.

pub mod decode;
pub mod encode;

/// The most slots in a block.
pub const SLOTS: usize = 32_768;

/// How many columns a payload has; it begins with their lengths.
pub const COLUMNS: usize = 5;

/// Bytes of the lengths.
pub const LENGTHS: usize = COLUMNS * 4;

/// The prediction state of one key within a block, the same for encoder and decoder.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Site {
    pub key: u64,
    /// Its last value.
    last: u64,
    /// The last difference of values that was not predicted.
    delta: u64,
    /// The predicted difference.
    stride: u64,
    /// The site that came after it the last time, plus 1.
    pub next: u32,
    /// Index in the encoder's table.
    pub place: u32,
}

impl Site {
    /// A new key; `last` is the last value of any key.
    pub const fn new(key: u64, last: u64, place: u32) -> Self {
        Self {
            key,
            last,
            delta: 0,
            stride: 0,
            next: 0,
            place,
        }
    }

    /// Its last value.
    #[inline]
    pub const fn last(&self) -> u64 {
        self.last
    }

    /// The predicted value.
    #[inline]
    pub const fn guess(&self) -> u64 {
        self.last.wrapping_add(self.stride)
    }

    /// The prediction was right.
    #[inline]
    pub const fn hit(&mut self) {
        self.last = self.guess();
        self.delta = self.stride;
    }

    /// The prediction was right some times, the last time with `value`.
    #[inline]
    pub const fn hit_until(&mut self, value: u64) {
        self.last = value;
        self.delta = self.stride;
    }

    /// The correction to store for `value`, which was not predicted.
    #[inline]
    pub const fn difference(&self, value: u64) -> u64 {
        value.wrapping_sub(self.last)
    }

    /// The prediction was wrong. A new stride counts from its second time on: the jump at the end
    /// of a matrix row must not spoil the next row.
    #[inline]
    pub const fn miss(&mut self, delta: u64) -> u64 {
        self.last = self.last.wrapping_add(delta);
        if self.delta == delta {
            self.stride = delta;
        }
        self.delta = delta;
        self.last
    }
}

#[cfg(test)]
mod tests;
