//! Numbers of variable length: seven bits a byte, the lowest first, the top bit
//! set in all bytes but the last (LEB128); signed numbers zigzag.

/// The longest number in bytes.
pub const LONGEST: usize = 10;

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
    pub fn put(&mut self, mut value: u64) {
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
