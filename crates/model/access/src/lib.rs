//! The vocabulary of Sunder: what an observed memory access is, and the
//! arithmetic of coherence granules.
//!
//! Used by every room; this crate uses nothing. It must not read files, make system
//! calls, or know who observes or judges.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(any(feature = "alloc", test))]
extern crate alloc;

mod address;
mod granule;
#[cfg(feature = "alloc")]
mod mapping;

pub use address::{
    Address, CodeAddress, LinkAddress, NotAnAddress, ProcessId, Span, ThreadId, Time,
};
pub use granule::{ByteMask, Granule, InvalidGranule, LINE, PAGE, PAGE_SIZE};
#[cfg(feature = "alloc")]
pub use mapping::{Mapping, Mappings, is_own_file};

/// What an access does to its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A plain load.
    Read,
    /// A plain store.
    Write,
    /// A read and a write by one instruction that is not locked
    /// (`add [mem], reg`).
    Update,
    /// A locked instruction or `xchg`: reads and writes in one step.
    Atomic,
}

impl Kind {
    /// Whether the bytes may change: anything but a plain load.
    pub const fn writes(self) -> bool {
        !matches!(self, Self::Read)
    }

    /// Whether the old value is used: anything but a plain store.
    pub const fn reads(self) -> bool {
        !matches!(self, Self::Write)
    }
}

/// How an access became known. After the observer, only the certainty that a report states
/// depends on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Provenance {
    /// Decoded from the registers of a sample taken in time (design 4.1).
    Sampled,
    /// Reported by a PMU memory event with its exact address (design 4.2).
    Counted,
    /// Trapped by a hardware watchpoint (design 4.3).
    Watched,
    /// Found by comparing a page with its twin (design 4.5; SHERIFF 3.5).
    Diffed,
    /// Recorded completely (design 4.6).
    Traced,
}

/// One read, write or atomic update of 1 to 64 bytes by one thread at one
/// instruction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Access {
    /// The time, on the monotonic clock of the machine that ran the target.
    pub time: Time,
    /// The thread, by the number that the kernel gave it.
    pub thread: ThreadId,
    /// The instruction that made it; 0 if that is not known.
    pub instruction: CodeAddress,
    /// The first byte touched.
    pub address: Address,
    /// Number of bytes touched, 1 to 64.
    pub width: u8,
    /// Read, write or both.
    pub kind: Kind,
    /// How it became known.
    pub provenance: Provenance,
    /// The least number of the program's accesses that this one stands for; 1 for exact
    /// streams.
    pub weight: f32,
}

impl Access {
    /// The bytes touched.
    pub const fn span(&self) -> Span {
        Span {
            start: self.address,
            len: self.width as u64,
        }
    }
}
