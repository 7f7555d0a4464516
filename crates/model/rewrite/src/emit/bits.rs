//! A table with a bit for each value of a register, which says whether the value is in one of several
//! ranges. Laid out for `bt` with 32 bits. Used by the guards. Pure.

use alloc::vec;
use alloc::vec::Vec;

/// The longest table of bits, in values: those of four pages, for 2 KiB of table.
const LONGEST: u64 = 4 << 12;

/// Which values are in one of several ranges.
pub(super) struct Table {
    /// The lowest value in a range.
    pub low: u64,
    /// The highest one.
    pub high: u64,
    /// The lower half of the value of the first bit.
    pub from: i32,
    /// The bits, lowest first; 1 for a value in a range.
    pub words: Vec<u64>,
}

impl Table {
    /// `None` if it would be too long, or if the values' lower halves, as signed numbers, do not
    /// ascend.
    pub(super) fn of(ranges: &[(u64, u64)]) -> Option<Self> {
        let (low, high) = (ranges.first()?.0, ranges.last()?.1);
        let first = low & !63;
        if high.checked_sub(first)? >= LONGEST {
            return None;
        }
        let lower_half = |value: u64| value as u32 as i32;
        let from = lower_half(first);
        if from > lower_half(high) {
            return None;
        }
        let mut words = vec![0; ((high - first) / 64 + 1) as usize];
        for value in ranges.iter().flat_map(|&(from, to)| from..=to) {
            let bit = value.checked_sub(first).filter(|_| value <= high)?;
            words[(bit / 64) as usize] |= 1 << (bit % 64);
        }
        Some(Self {
            low,
            high,
            from,
            words,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What `bt` with 32 bits reads for this value: the 4 bytes whose number is a 32nd of its lower
    /// half, of which bit 0 is where `from` says (Intel's manual, volume 2, "Bit(BitBase, BitOffset)").
    fn bit(table: &Table, value: u64) -> bool {
        let half = i64::from(value as u32 as i32);
        let at = 4 * (half >> 5) - (i64::from(table.from) >> 3);
        let bytes: Vec<u8> = table.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let at = usize::try_from(at).expect("not before the table");
        let read = bytes[at..at + 4].try_into().expect("four bytes");
        u32::from_le_bytes(read) >> (half & 31) & 1 == 1
    }

    #[test]
    fn a_table_has_a_bit_for_each_value_of_the_ranges_and_no_other() {
        for base in [
            0,
            5,
            0x7fff_ff07,
            0x8000_0000,
            0xffff_f000,
            0x5637_89ab_cdef,
        ] {
            let ranges = [(0, 0), (3, 9), (64, 64), (70, 200), (4000, 4095)]
                .map(|(low, high)| (base + low, base + high));
            let Some(table) = Table::of(&ranges) else {
                let half = |value: u64| value as u32 as i32;
                assert!(half(base & !63) > half(base + 4095), "{base:#x}");
                continue;
            };
            assert_eq!((table.low, table.high), (base, base + 4095));
            for value in base..=base + 4095 {
                let is_in = ranges.iter().any(|r| (r.0..=r.1).contains(&value));
                assert_eq!(bit(&table, value), is_in, "{base:#x} {value:#x}");
            }
        }
        assert!(
            Table::of(&[(0, 1), (LONGEST, LONGEST)]).is_none(),
            "too long"
        );
        assert!(Table::of(&[]).is_none());
    }
}
