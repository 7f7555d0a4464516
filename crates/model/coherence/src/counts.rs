//! The counts of a node, a line and the machine. They are plain numbers; the code that changes
//! state counts.

use std::ops::AddAssign;

/// Counts of a node, a line or the whole machine.
///
/// A *reference* is the part of an access that lies in one granule. When the trace is finished,
/// each reference is exactly one of: a hit, an upgrade, or a miss of one of the four kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counts {
    /// Accesses, counted once for each granule that they touch.
    pub references: u64,
    /// References whose granule was in the first-level cache; 0 for infinite caches, and for
    /// lines.
    pub first_level: u64,
    /// First misses of a node on a granule.
    pub cold: u64,
    /// Misses on granules that were replaced to make room.
    pub replacement: u64,
    /// Misses that bring a word that another node wrote and that this node uses.
    pub true_sharing: u64,
    /// Useless misses: the node uses no word that others wrote.
    pub false_sharing: u64,
    /// Misses after an invalidation that are false sharing by the definition of Eggers and
    /// Jeremiassen, which looks only at the missing access.
    pub false_by_first_access: u64,
    /// Misses by a write or an atomic.
    pub write_misses: u64,
    /// Writes to a valid copy that needed a request for ownership.
    pub upgrades: u64,
    /// Copies of other nodes that this node's writes invalidated.
    pub invalidations: u64,
    /// Misses that another node's dirty copy answered (hit modified, HITM).
    pub hitm: u64,
    /// Misses that another node's clean copy answered (MESIF).
    pub forwards: u64,
    /// Dirty copies written to memory, because another node read them or because they were
    /// replaced. Copies that are still dirty when the trace ends are not counted. Has no
    /// meaning for a shared memory without a memory behind it.
    pub write_backs: u64,
}

impl Counts {
    /// All misses.
    pub const fn misses(&self) -> u64 {
        self.cold + self.replacement + self.true_sharing + self.false_sharing
    }

    /// Misses after an invalidation: true and false sharing.
    pub const fn coherence_misses(&self) -> u64 {
        self.true_sharing + self.false_sharing
    }

    /// Misses without which a node would use a wrong value: all but false sharing.
    pub const fn essential(&self) -> u64 {
        self.misses() - self.false_sharing
    }

    /// References that needed no request to another node or to memory.
    pub const fn hits(&self) -> u64 {
        self.references - self.misses() - self.upgrades
    }

    /// The same counts under the names of a page-based shared memory.
    pub const fn faults(&self) -> Faults {
        Faults {
            read: self.misses() - self.write_misses,
            write: self.write_misses,
            upgrade: self.upgrades,
        }
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.references += other.references;
        self.first_level += other.first_level;
        self.cold += other.cold;
        self.replacement += other.replacement;
        self.true_sharing += other.true_sharing;
        self.false_sharing += other.false_sharing;
        self.false_by_first_access += other.false_by_first_access;
        self.write_misses += other.write_misses;
        self.upgrades += other.upgrades;
        self.invalidations += other.invalidations;
        self.hitm += other.hitm;
        self.forwards += other.forwards;
        self.write_backs += other.write_backs;
    }
}

/// The faults of a page-based shared memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Faults {
    /// Reads of a page of which the node has no copy.
    pub read: u64,
    /// Writes to a page of which the node has no copy.
    pub write: u64,
    /// Writes to a page of which the node has a read-only copy.
    pub upgrade: u64,
}

impl Faults {
    /// All shared-memory faults.
    pub const fn total(&self) -> u64 {
        self.read + self.write + self.upgrade
    }
}
