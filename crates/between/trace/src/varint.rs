//! Numbers of variable length: seven bits a byte, the lowest first, the top bit
//! set in all bytes but the last (LEB128); signed numbers zigzag.

/// The longest number in bytes.
pub const LONGEST: usize = 10;

/// The top bit of each byte of a word: the number continues.
const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// Maps small magnitudes of both signs to small numbers.
#[inline]
pub const fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// The inverse of [`zigzag`].
#[inline]
pub const fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

/// A column that is being written, in memory of fixed size. A number that does not fit is dropped
/// and remembered: the whole block is then discarded.
#[derive(Debug)]
pub struct Column<'a> {
    bytes: &'a mut [u8],
    len: usize,
    overflow: bool,
}

impl<'a> Column<'a> {
    /// An empty column in `bytes`.
    pub const fn new(bytes: &'a mut [u8]) -> Self {
        Self {
            bytes,
            len: 0,
            overflow: false,
        }
    }

    /// Appends a number.
    #[inline]
    pub fn put(&mut self, value: u64) {
        match self.bytes.get_mut(self.len..self.len + LONGEST) {
            // Eight bytes hold what is below 2^56. They are written as one word, because a
            // processor can't guess how often a loop over them would run.
            Some([place @ .., _, _]) if value < 1 << (7 * 8) => {
                let used = (70 - (value | 1).leading_zeros()) / 7;
                let ends = CONTINUED << (8 * (used - 1));
                let word = spread(value) | (CONTINUED & !ends);
                place.copy_from_slice(&word.to_le_bytes());
                self.len += used as usize;
            }
            _ => self.put_long(value),
        }
    }

    #[cold]
    fn put_long(&mut self, mut value: u64) {
        if let Some(place) = self.bytes.get_mut(self.len..self.len + LONGEST) {
            let mut used = 1;
            for byte in place {
                if value < 0x80 {
                    *byte = value as u8;
                    break;
                }
                *byte = value as u8 | 0x80;
                value >>= 7;
                used += 1;
            }
            self.len += used;
        } else {
            self.overflow = true;
        }
    }

    /// The written bytes; `None` if not all numbers fitted.
    pub fn written(&self) -> Option<&[u8]> {
        self.bytes.get(..self.len).filter(|_| !self.overflow)
    }
}

/// The lowest 56 bits, seven to each byte.
#[inline]
const fn spread(value: u64) -> u64 {
    let halves = (value & 0x0fff_ffff) | (value & 0x00ff_ffff_f000_0000) << 4;
    let quarters = (halves & 0x0000_3fff_0000_3fff) | (halves & 0x0fff_c000_0fff_c000) << 2;
    (quarters & 0x007f_007f_007f_007f) | (quarters & 0x3f80_3f80_3f80_3f80) << 1
}

/// Reads numbers from the front of `bytes`. A number that is cut off or longer than 64 bits is
/// `None`.
#[derive(Clone, Copy, Debug, Default)]
pub struct Numbers {
    at: usize,
    end: usize,
}

impl Numbers {
    /// The numbers in `start..end` of a buffer, which each call gets.
    pub const fn new(start: usize, end: usize) -> Self {
        Self { at: start, end }
    }

    /// The next number.
    #[inline]
    pub fn next(&mut self, buffer: &[u8]) -> Option<u64> {
        let bytes = buffer.get(self.at..self.end)?;
        let first = *bytes.first()?;
        if first < 0x80 {
            self.at += 1;
            return Some(u64::from(first));
        }
        let mut value = 0;
        for (i, &byte) in bytes.iter().take(LONGEST).enumerate() {
            let bits = u64::from(byte & 0x7f);
            if i == LONGEST - 1 && bits > 1 {
                return None;
            }
            value |= bits << (7 * i);
            if byte < 0x80 {
                self.at += i + 1;
                return Some(value);
            }
        }
        None
    }

    /// Whether all were read.
    pub const fn is_empty(&self) -> bool {
        self.at == self.end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn small_numbers_take_one_byte_and_the_largest_ten() {
        let mut bytes = [0; 32];
        let mut column = Column::new(&mut bytes);
        column.put(127);
        assert_eq!(column.written(), Some(&[127][..]));
        column.put(u64::MAX);
        assert_eq!(column.written().map(<[u8]>::len), Some(11));
    }

    /// The definition: seven bits a byte, and the top bit in all but the last.
    #[test]
    fn numbers_of_every_length_have_their_bytes() {
        let powers = (0..64).map(|bit| 1u64 << bit);
        for value in powers.flat_map(|power| [power - 1, power, power | (power / 3), !power]) {
            let mut wanted = Vec::new();
            let mut rest = value;
            while rest >= 0x80 {
                wanted.push(rest as u8 | 0x80);
                rest >>= 7;
            }
            wanted.push(rest as u8);
            let mut bytes = [0; 16];
            let mut column = Column::new(&mut bytes);
            column.put(value);
            assert_eq!(column.written(), Some(&wanted[..]), "{value:#x}");
        }
    }

    #[test]
    fn a_number_of_more_than_64_bits_or_without_an_end_is_none() {
        let mut numbers = Numbers::new(0, 10);
        assert_eq!(
            numbers.next(&[255, 255, 255, 255, 255, 255, 255, 255, 255, 2]),
            None
        );
        let mut numbers = Numbers::new(0, 2);
        assert_eq!(numbers.next(&[0x80, 0x80]), None);
    }

    #[test]
    fn a_full_buffer_is_reported() {
        let mut bytes = [0; 12];
        let mut column = Column::new(&mut bytes);
        for _ in 0..13 {
            column.put(1);
        }
        assert_eq!(column.written(), None);
    }

    proptest! {
        #[test]
        fn numbers_are_read_back_unchanged(values in prop::collection::vec(any::<i64>(), 0..50)) {
            let mut bytes = [0; 600];
            let mut column = Column::new(&mut bytes);
            for &v in &values {
                column.put(zigzag(v));
            }
            let written = column.written().unwrap().to_vec();
            let mut numbers = Numbers::new(0, written.len());
            for &v in &values {
                prop_assert_eq!(numbers.next(&written).map(unzigzag), Some(v));
            }
            prop_assert!(numbers.is_empty());
        }
    }
}
