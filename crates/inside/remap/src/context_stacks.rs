//! The stacks that the program made itself, remembered in blocks of their addresses
//! ([`crate::contexts`] finds them). Nothing on them may be moved. Contexts: all.

use core::sync::atomic::Ordering::SeqCst;
use core::sync::atomic::{AtomicU64, fence};

/// Size of the blocks in which stacks are remembered, in bytes.
pub const BLOCK: u64 = 16 << 10;
/// How many blocks can be remembered, a power of two: 128 MiB of stacks.
const MOST: usize = 8192;
/// How many entries the search for a block covers.
const FAR: usize = 64;
/// The remembered blocks by number; none is 0.
static BLOCKS: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
fn blocks(start: u64, len: u64) -> impl Iterator<Item = u64> {
    (start / BLOCK..=start.saturating_add(len.saturating_sub(1)) / BLOCK).map(|b| b + 1)
}

/// The entries in which a block may be remembered.
fn entries(block: u64) -> impl Iterator<Item = &'static AtomicU64> {
    let first = (mixed(block) >> 51) as usize;
    (first..first + FAR).filter_map(|entry| BLOCKS.get(entry % MOST))
}

/// Remembers a range; returns whether there was room.
pub fn remember(start: u64, len: u64) -> bool {
    blocks(start, len).all(|block| {
        entries(block).any(
            |entry| match entry.compare_exchange(0, block, SeqCst, SeqCst) {
                Ok(_) => true,
                Err(there) => there == block,
            },
        )
    })
}

/// Whether a part of a remembered stack lies in the range.
pub fn any_in(start: u64, len: u64) -> bool {
    fence(SeqCst);
    blocks(start, len).any(|block| {
        let there = entries(block).map(|entry| entry.load(SeqCst));
        there.take_while(|&b| b != 0).any(|b| b == block)
    })
}

/// Mixes a number so that the upper bits depend on all of them.
pub const fn mixed(number: u64) -> u64 {
    (number ^ number >> 29).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remembered_ranges_are_found() {
        let start = 0x7000_0000_0000;
        assert!(!any_in(start, 4096));
        assert!(remember(start + 100, 40_000));
        for (at, wanted) in [(0, true), (32_768, true), (49_152, false), (65_536, false)] {
            assert_eq!(any_in(start + at, 4096), wanted, "{at}");
        }
        assert!(!any_in(start - 4096, 4096));
        assert!(any_in(start - 4096, 8192));
        // Many stacks.
        for stack in 0..1000 {
            assert!(remember(start + stack * 65_536, 65_536));
        }
        assert!((0..1000).all(|stack| any_in(start + stack * 65_536, 65_536)));
        assert!(!any_in(start + 1000 * 65_536, 65_536));
    }
}
