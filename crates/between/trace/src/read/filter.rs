//! The choice of events that a reader wants.

use super::event::What;
use sunder_access::{Kind, Span};

/// Kinds of events, as a set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds(u8);

impl Kinds {
    /// None.
    pub const NONE: Self = Self(0);
    /// Plain and atomic loads.
    pub const READS: Self = Self(1);
    /// Plain and atomic stores, and updates.
    pub const WRITES: Self = Self(2);
    /// Locked read-modify-writes.
    pub const ATOMICS: Self = Self(4);
    /// Allocations and frees.
    pub const HEAP: Self = Self(8);
    /// Starts and ends of threads.
    pub const THREADS: Self = Self(16);
    /// Synchronisation.
    pub const SYNC: Self = Self(32);
    /// Marks.
    pub const MARKS: Self = Self(64);
    /// Accesses of all kinds.
    pub const ACCESSES: Self = Self(7);
    /// All.
    pub const ALL: Self = Self(127);

    /// The kinds of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the two have a kind in common.
    pub const fn overlaps(self, other: Self) -> bool {
        self.0 & other.0 != 0
    }

    pub(super) const fn of(what: &What) -> Self {
        match what {
            What::Access { access, .. } => match access.kind {
                Kind::Read => Self::READS,
                Kind::Write | Kind::Update => Self::WRITES,
                Kind::Atomic => Self::ATOMICS,
            },
            What::Allocate { .. } | What::Free { .. } => Self::HEAP,
            What::ThreadStart { .. }
            | What::Stack { .. }
            | What::Frame { .. }
            | What::ThreadEnd => Self::THREADS,
            What::Sync { .. } => Self::SYNC,
            What::Mark(_) => Self::MARKS,
        }
    }
}

/// The events that a reader wants. The default is all.
#[derive(Clone, Debug)]
pub struct Filter {
    /// Only events of these threads, by index; `None`: of all. Blocks of other threads are not
    /// read.
    pub threads: Option<Vec<u32>>,
    /// Only accesses to these addresses; `None`: to all. Events without an address pass.
    pub range: Option<Span>,
    /// Only events of these kinds.
    pub kinds: Kinds,
}

impl Default for Filter {
    fn default() -> Self {
        Self {
            threads: None,
            range: None,
            kinds: Kinds::ALL,
        }
    }
}

impl Filter {
    pub(super) fn wants_thread(&self, index: u32) -> bool {
        self.threads.as_ref().is_none_or(|t| t.contains(&index))
    }

    #[inline]
    pub(super) fn wants(&self, what: &What) -> bool {
        if self.kinds != Kinds::ALL && !self.kinds.overlaps(Kinds::of(what)) {
            return false;
        }
        self.is_near(what)
    }

    /// Whether the event is in the wanted range of addresses, whatever its kind.
    #[inline]
    pub(super) fn is_near(&self, what: &What) -> bool {
        let Some(range) = self.range else {
            return true;
        };
        match *what {
            What::Access { access, .. } => range.overlaps(access.span()),
            What::Allocate { address, size, .. } => range.overlaps(Span::new(address, size.max(1))),
            What::Free { address }
            | What::Sync {
                object: address, ..
            } => range.contains(address),
            What::ThreadStart { .. }
            | What::Stack { .. }
            | What::Frame { .. }
            | What::ThreadEnd
            | What::Mark(_) => true,
        }
    }
}
