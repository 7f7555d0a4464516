//! How the slots of one thread become a block's payload and come back.
//!
//! Programs run in loops: the same keys follow each other, and each key's values
//! advance by a stride. So each key predicts its successor and its next value,
//! and only what was predicted wrongly is stored, as a count of right guesses
//! and a correction. Five columns, each a sequence of numbers of variable
//! length, then Zstandard over all of them; `docs/design/trace.md` has the
//! details.

pub mod decode;
pub mod encode;

/// The most slots in a block.
pub const SLOTS: usize = 32_768;

/// How many columns a payload has; their lengths stand before them.
pub const COLUMNS: usize = 5;

/// Bytes of the lengths.
pub const LENGTHS: usize = COLUMNS * 4;

/// What is known of one key within a block. The same in both directions.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Site {
    pub key: u64,
    /// Its last value.
    last: u64,
    /// The last difference of values, if it did not come as predicted.
    delta: u64,
    /// The difference that is expected.
    stride: u64,
    /// The site that came after it the last time, plus 1.
    pub next: u32,
    /// Where the encoder's table refers to it.
    pub place: u32,
}

impl Site {
    /// A new key, met when `last` was the last value of any.
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

    /// The value that is expected.
    #[inline]
    pub const fn guess(&self) -> u64 {
        self.last.wrapping_add(self.stride)
    }

    /// The guess was right.
    #[inline]
    pub const fn hit(&mut self) {
        self.last = self.guess();
        self.delta = self.stride;
    }

    /// The guess was right some times, the last time with `value`.
    #[inline]
    pub const fn hit_until(&mut self, value: u64) {
        self.last = value;
        self.delta = self.stride;
    }

    /// What to store for `value`, which is not what was guessed.
    #[inline]
    pub const fn difference(&self, value: u64) -> u64 {
        value.wrapping_sub(self.last)
    }

    /// The guess was wrong. A new stride must be seen twice: a jump at the end
    /// of a row must not spoil the next row.
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
