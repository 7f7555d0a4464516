//! Arbitrary bytes, read from the front. After their end, zeroes follow.

/// The rest of an input.
pub struct Input<'a>(pub &'a [u8]);

impl<'a> Input<'a> {
    /// Whether the input has ended.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// At most the next `count` bytes.
    pub fn take(&mut self, count: usize) -> &'a [u8] {
        let (part, rest) = self.0.split_at(count.min(self.0.len()));
        self.0 = rest;
        part
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.take(1).first().copied().unwrap_or(0)
    }

    /// The next `bytes` (at most 8) bytes as a number, the lowest first.
    pub fn number(&mut self, bytes: usize) -> u64 {
        let mut whole = [0; 8];
        for (to, from) in whole.iter_mut().zip(self.take(bytes)) {
            *to = *from;
        }
        u64::from_le_bytes(whole)
    }

    /// A number of `bytes` bytes; if all their bits are set, the number of `more` bytes after them.
    pub fn extended(&mut self, bytes: usize, more: usize) -> u64 {
        match self.number(bytes) {
            all if all == (1 << (8 * bytes)) - 1 => self.number(more),
            number => number,
        }
    }
}
