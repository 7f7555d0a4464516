//! How objects of one type lie in memory whose blocks are not known (another heap, a pool, a mapping): one
//! behind the other as in an array, or each where an allocator put it. Used by the types of objects. Must not
//! look anything up: it sees offsets and counts.

use std::collections::{BTreeMap, BTreeSet};
use sunder_access::ByteMask;

/// An operand of the type, on one line.
#[derive(Clone, Copy, Debug)]
pub(super) struct Touch {
    /// Where the type would begin if the operand lies where the instruction says, from the start of the
    /// memory; of an element if the instruction steps through an array.
    pub(super) start: i64,
    /// Whether the instruction tells the operand's place in the type exactly.
    pub(super) exact: bool,
    /// The accesses of the instruction.
    pub(super) count: u64,
}

/// Where the objects of a type begin.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Spacing {
    /// As elements of an array.
    Elements {
        /// Bytes from one to the next, never 0.
        stride: u64,
        /// The offset of the first from the start of the memory.
        first: u64,
    },
    /// Each for itself.
    Apart {
        /// Bytes of one.
        size: u64,
        /// The offsets of those that are known from the start of the memory, the most used first. An object
        /// may begin before that.
        starts: Vec<i64>,
    },
}

impl Spacing {
    /// Read from the operands on a line, with elements of `stride` bytes; `None` if there are no operands.
    /// Elements of an array all begin at the same place modulo their size. If the places of exact operands
    /// differ, it is no array.
    pub(super) fn of(touches: &[Touch], stride: u64) -> Option<Self> {
        let stride = stride.max(1);
        let phase = |touch: &Touch| i128::from(touch.start).rem_euclid(i128::from(stride)) as u64;
        let most = touches.iter().map(|t| t.count).max()?;
        let counted = touches.iter().filter(|t| !is_bystander(t.count, most));
        let exact: Vec<&Touch> = counted.filter(|t| t.exact).collect();
        let phases: BTreeSet<u64> = exact.iter().map(|t| phase(t)).collect();
        if phases.len() > 1 {
            let mut counts: BTreeMap<i64, u64> = BTreeMap::new();
            for touch in exact {
                let count = counts.entry(touch.start).or_default();
                *count = count.saturating_add(touch.count);
            }
            let mut starts: Vec<i64> = counts.keys().copied().collect();
            starts.sort_by_key(|start| std::cmp::Reverse(counts[start]));
            return Some(Self::Apart {
                size: stride,
                starts,
            });
        }
        let mut votes: BTreeMap<u64, u64> = BTreeMap::new();
        for touch in touches {
            let count = votes.entry(phase(touch)).or_default();
            *count = count.saturating_add(touch.count);
        }
        let first = votes.into_iter().max_by_key(|&(_, count)| count)?.0;
        Some(Self::Elements { stride, first })
    }

    /// The start of the object that has the byte at `offset`, modulo `size`; `None` if no known object has it.
    pub(super) fn phase(&self, offset: u64, size: u64) -> Option<u64> {
        let size = i128::from(size.max(1));
        let start = match self {
            Self::Elements { first, .. } => i128::from(*first),
            Self::Apart { .. } => i128::from(offset) - i128::from(self.within(offset)?),
        };
        Some(start.rem_euclid(size) as u64)
    }

    /// The offset of the byte at `offset` within its object; `None` if no known object has it.
    pub(super) fn within(&self, offset: u64) -> Option<u64> {
        match self {
            Self::Elements { stride, first } => {
                Some((offset % stride + stride - first % stride) % stride)
            }
            Self::Apart { size, starts } => {
                let from = |start: &i64| i128::from(offset) - i128::from(*start);
                let mut within = starts
                    .iter()
                    .filter_map(|start| u64::try_from(from(start)).ok());
                within.find(|within| within < size)
            }
        }
    }
}

/// Whether an object or instruction with so many accesses on a line counts for nothing beside one with `most`.
pub(super) const fn is_bystander(accesses: u64, most: u64) -> bool {
    /// One access in so many.
    const FEW: u64 = 50;
    accesses.saturating_mul(FEW) < most
}

/// The first bytes of the operands that an instruction touched on a line. An operand that is shorter than
/// the others, at the line's start, is the rest of one that begins on the line before.
pub(super) fn operands(bytes: ByteMask) -> Vec<u64> {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for byte in bytes.iter() {
        match runs.last_mut() {
            Some((start, len)) if *start + *len == byte => *len += 1,
            _ => runs.push((byte, 1)),
        }
    }
    let shortest = runs.iter().skip(1).map(|run| run.1).min();
    if let (Some(&(0, len)), Some(shortest)) = (runs.first(), shortest)
        && len < shortest
    {
        runs.remove(0);
    }
    runs.into_iter().map(|run| run.0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn touch(start: i64, count: u64) -> Touch {
        Touch {
            start,
            exact: true,
            count,
        }
    }

    /// Two objects of 24 bytes in chunks of 32 bytes, of which one instruction touches the member at 8.
    #[test]
    fn objects_in_larger_chunks_are_no_array() {
        let touches: Vec<Touch> = operands(ByteMask::range(24, 8).union(ByteMask::range(56, 8)))
            .into_iter()
            .map(|at| touch(at as i64 - 8, 500))
            .collect();
        let spacing = Spacing::of(&touches, 24).expect("operands");
        assert_eq!(spacing.within(24), Some(8));
        assert_eq!(spacing.within(56), Some(8));
        // Another member of the second, and what no object has.
        assert_eq!(spacing.within(64), Some(16));
        assert_eq!(spacing.within(8), None);
        assert_eq!(spacing.within(40), None);
    }

    #[test]
    fn an_object_may_begin_before_the_line() {
        let spacing = Spacing::of(&[touch(-16, 9), touch(16, 9)], 24).expect("operands");
        assert_eq!(spacing.within(0), Some(16));
        assert_eq!(spacing.within(20), Some(4));
        assert_eq!(
            (spacing.phase(0, 24), spacing.phase(20, 24)),
            (Some(8), Some(16))
        );
    }

    #[test]
    fn elements_of_an_array_begin_at_multiples_of_their_size() {
        let spacing = Spacing::of(&[touch(-8, 9), touch(16, 5), touch(40, 3)], 24);
        let elements = Spacing::Elements {
            stride: 24,
            first: 16,
        };
        assert_eq!(spacing, Some(elements.clone()));
        assert_eq!(elements.within(0), Some(8));
        assert_eq!(Spacing::of(&[], 24), None);
        // Of a type of unknown size, each byte is an element.
        let bytes = Spacing::of(&[touch(3, 1), touch(4, 1)], 0).expect("operands");
        assert_eq!(bytes.within(7), Some(0));
    }

    #[test]
    fn neither_rare_nor_inexact_operands_tell_of_an_array() {
        let inexact = Touch {
            exact: false,
            ..touch(4, 400)
        };
        for other in [inexact, touch(4, 1)] {
            let spacing = Spacing::of(&[touch(0, 500), touch(32, 500), other], 16);
            let elements = Spacing::Elements {
                stride: 16,
                first: 0,
            };
            assert_eq!(spacing, Some(elements));
        }
    }

    #[test]
    fn the_rest_of_an_operand_begins_none() {
        let at = |runs: &[(u64, u64)]| {
            let masks = runs.iter().map(|&(start, len)| ByteMask::range(start, len));
            operands(masks.fold(ByteMask::EMPTY, ByteMask::union))
        };
        assert_eq!(at(&[(0, 4), (16, 8)]), [16]);
        assert_eq!(at(&[(0, 8), (16, 8)]), [0, 16]);
        assert_eq!(at(&[(0, 4)]), [0]);
        // Neighbours on both sides of an element.
        assert_eq!(at(&[(8, 16), (32, 8)]), [8, 32]);
    }

    #[test]
    fn two_of_880_accesses_are_a_bystanders() {
        assert!(is_bystander(2, 878));
        assert!(!is_bystander(20, 860));
        assert!(!is_bystander(1, 1));
    }
}
