//! How much memory the buckets of one heap may take. A bucket has pages of its own, so a program
//! with many sizes or call sites and few blocks of each would need a page for each block. Where
//! that would be too much, a request gets a block of its size class, beside blocks of other
//! buckets of this thread. Called by [`crate::heap`]; must not know spans. Contexts: as there.
//!
//! What is allocated is not counted at each call, because the fast paths have no time for it. The
//! heap counts when the limit is reached, and then waits for as many refused requests as it has
//! looked at spans, so that a request pays for a constant number of spans.

use core::sync::atomic::{AtomicUsize, Ordering};

/// So many bytes all heaps together may reach beyond the share of allocated bytes: 1 MiB.
const SPARE: usize = 1 << 20;
/// The least of it that a heap has, however many there are, in bytes: 64 KiB.
const LEAST_SPARE: usize = 64 << 10;

/// The number of heaps that the process has made.
static HEAPS: AtomicUsize = AtomicUsize::new(0);

/// A heap was made.
pub fn heap_made() {
    HEAPS.fetch_add(1, Ordering::Relaxed);
}

/// A heap's budget. Zeroed memory is a budget that has not been counted yet.
#[repr(C)]
#[derive(Default)]
pub struct Budget {
    /// Bytes that blocks had reached when they were counted last, and all that came since.
    reached: usize,
    /// Bytes that they may reach.
    allowed: usize,
    /// So many requests are refused before the bytes are counted again.
    wait: usize,
}

impl Budget {
    /// Whether so many bytes more are allowed, as far as is known without a count.
    pub const fn allows(&self, bytes: usize) -> bool {
        self.reached + bytes <= self.allowed
    }

    /// Blocks have reached so many bytes more.
    pub const fn grown(&mut self, bytes: usize) {
        self.reached = self.reached.saturating_add(bytes);
    }

    /// Whether a request beyond the limit is refused without a count.
    pub const fn must_wait(&mut self) -> bool {
        let waits = self.wait > 0;
        self.wait = self.wait.saturating_sub(1);
        waits
    }

    /// Takes over a count: bytes that blocks have reached, bytes of allocated blocks, and how many
    /// spans were looked at. Blocks may reach a quarter more than is allocated; blocks of size
    /// classes, which have no limit, take part of the rest up to twice as much.
    pub fn counted(&mut self, reached: usize, live: usize, spans: usize) {
        let heaps = HEAPS.load(Ordering::Relaxed).max(1);
        self.reached = reached;
        self.allowed = live + live / 4 + (SPARE / heaps).max(LEAST_SPARE);
        self.wait = spans;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_raises_the_limit() {
        let mut budget = Budget::default();
        assert!(
            !budget.allows(1),
            "nothing is allowed before the first count"
        );
        assert!(!budget.must_wait(), "the first request counts");
        budget.counted(0, 64 << 20, 2);
        assert!(budget.allows(80 << 20));
        assert!(!budget.allows((80 << 20) + SPARE + 1));
        budget.grown(80 << 20);
        assert!(!budget.allows(SPARE + 1));
        assert!([(); 3].map(|()| budget.must_wait()) == [true, true, false]);
    }
}
