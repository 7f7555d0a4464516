//! A table with a byte for each address between the first and the last that moved by one distance: how
//! many bytes from there on moved by it. An operand with a base alone needs one comparison with it,
//! whatever it adds to the base, so that all such operands of a copy share the table. `bt` with a table
//! of bits ([`super::bits`]) takes longer: in a loop with nothing else 1.2 ns a round against 0.75, on
//! the one processor where that was measured. Used by the guards. Pure.

use crate::request::MovedPage;
use alloc::vec::Vec;

/// The longest table, in bytes: that of two pages.
const LONGEST: u64 = 2 << 12;

/// See the module.
#[derive(Debug)]
pub(super) struct Runs {
    /// The address of the first byte.
    pub first: u64,
    /// Eight bytes each, the lowest first.
    pub words: Vec<u64>,
}

impl Runs {
    /// The table for what has moved by `distance`; `None` if that is nothing or too much.
    pub(super) fn of(moved: &MovedPage, distance: i64) -> Option<Self> {
        let alike = || moved.rules.iter().filter(|rule| rule.delta == distance);
        let first = alike().map(|rule| rule.bytes.start.0).min()?;
        let end = alike().map(|rule| rule.bytes.end().0).max()?;
        let length = end.checked_sub(first).filter(|&n| n <= LONGEST)?;
        let mut bytes = alloc::vec![0u8; length.next_multiple_of(8) as usize];
        for rule in alike() {
            let from = (rule.bytes.start.0 - first) as usize;
            let run = bytes.get_mut(from..from + rule.bytes.len as usize)?;
            for (left, byte) in run.iter_mut().rev().enumerate() {
                *byte = u8::try_from(left + 1).unwrap_or(u8::MAX);
            }
        }
        let words = bytes.as_chunks::<8>().0;
        let words = words.iter().map(|word| u64::from_le_bytes(*word));
        Some(Self {
            first,
            words: words.collect(),
        })
    }

    /// Whether the table has a byte for each address from `low` to `high`.
    pub(super) fn covers(&self, low: u64, high: u64) -> bool {
        let end = self.first + 8 * self.words.len() as u64;
        self.first <= low && low <= high && high < end
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::Rule;
    use sunder_access::{Address, Span};

    const PAGE: u64 = 0x7000;

    fn moved(rules: &[(u64, u64, i64)]) -> MovedPage {
        let rule = |&(at, len, delta): &(u64, u64, i64)| Rule {
            bytes: Span::new(Address(PAGE + at), len),
            delta,
        };
        MovedPage {
            page: Span::new(Address(PAGE), 4096),
            rules: rules.iter().map(rule).collect(),
        }
    }

    #[test]
    fn a_byte_says_how_much_moved_from_there_on() {
        let moved = moved(&[(0, 16, 1), (16, 24, 2), (40, 300, 1), (340, 3756, 2)]);
        let table = Runs::of(&moved, 1).expect("it is short");
        assert_eq!(table.first, PAGE);
        let bytes: Vec<u8> = table.words.iter().flat_map(|w| w.to_le_bytes()).collect();
        for at in 0..bytes.len() as u64 {
            let run = moved
                .rules
                .iter()
                .find(|rule| rule.delta == 1 && rule.bytes.contains(Address(PAGE + at)));
            let left = run.map_or(0, |rule| rule.bytes.end().0 - (PAGE + at));
            assert_eq!(u64::from(bytes[at as usize]), left.min(255), "{at}");
        }
        assert!(table.covers(PAGE, PAGE + 339) && !table.covers(PAGE, PAGE + 344));
        assert!(!table.covers(PAGE - 1, PAGE));
        assert!(Runs::of(&moved, 3).is_none());
    }

    #[test]
    fn what_lies_far_apart_has_no_table() {
        let far = moved(&[(0, 16, 1), (LONGEST, 16, 1)]);
        assert!(Runs::of(&far, 1).is_none());
    }
}
