//! The address space from which buckets take their spans. A placer deals in addresses; whether
//! they have memory is the arena's concern.

use crate::class::round_up;
use sunder_access::Address;

/// A source of address space. Each span is returned only once.
pub trait Arena {
    /// Reserves `bytes` bytes of address space, aligned to `align` (a power of two); `None` if
    /// there is none left.
    fn reserve(&mut self, bytes: u64, align: u64) -> Option<Address>;
}

/// Address space from one address up to another, handed out in order.
#[derive(Clone, Copy, Debug)]
pub struct Reserve {
    next: u64,
    end: u64,
}

impl Reserve {
    /// All addresses from `start` up to `end`.
    pub const fn new(start: Address, end: Address) -> Self {
        Self {
            next: start.0,
            end: end.0,
        }
    }
}

impl Default for Reserve {
    /// 63 bits of addresses. Real programs use less than 47 bits, so a bucket may take large
    /// spans.
    fn default() -> Self {
        Self::new(Address(1 << 40), Address(1 << 63))
    }
}

impl Arena for Reserve {
    fn reserve(&mut self, bytes: u64, align: u64) -> Option<Address> {
        let start = round_up(self.next, align);
        let end = start.checked_add(bytes).filter(|&end| end <= self.end)?;
        if start < self.next {
            return None;
        }
        self.next = end;
        Some(Address(start))
    }
}
