//! Signal stacks, by address and length. Nothing on them may be moved, because the kernel itself
//! writes there.
//!
//! Contexts: all.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

const MOST: usize = 256;

static START: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];
static LEN: [AtomicU64; MOST] = [const { AtomicU64::new(0) }; MOST];

/// Remembers a stack; false if there are too many.
pub fn add(start: u64, len: u64) -> bool {
    START.iter().zip(&LEN).any(|(at, bytes)| {
        let mine = at.compare_exchange(0, start, AcqRel, Acquire);
        if mine.is_ok() || mine == Err(start) {
            bytes.fetch_max(len, Release);
            return true;
        }
        false
    })
}

/// Whether a part of a remembered stack lies in a range.
pub fn any_in(start: u64, len: u64) -> bool {
    START.iter().zip(&LEN).any(|(at, bytes)| {
        let from = at.load(Relaxed);
        let bytes = bytes.load(Acquire);
        from != 0 && from < start + len && start < from.saturating_add(bytes)
    })
}
