//! The events that a caller may receive while the trace runs. They carry the caller's own tags,
//! so that it can count by object, call site, instruction or thread. A hook that an observer
//! does not override has no cost.

use sunder_access::Address;

/// Receives events, with the tags of the accesses that caused them. `()` receives nothing and
/// has no cost.
pub trait Observer {
    /// The caller's tag of an access. It is copied into each lifetime that a miss begins, so it
    /// should be small. `()` if tags are not wanted.
    type Tag: Copy;

    /// A miss was classified because its lifetime ended. This may be at the end of the trace
    /// for a miss at its beginning.
    fn miss(&mut self, miss: &Miss<Self::Tag>) {
        let _ = miss;
    }

    /// A node wrote to a copy that was read-only.
    fn upgrade(&mut self, upgrade: &Upgrade<Self::Tag>) {
        let _ = upgrade;
    }

    /// A write invalidated a copy. [`Observer::miss`] was called just before, for the miss that
    /// had brought the copy.
    fn invalidation(&mut self, invalidation: &Invalidation<Self::Tag>) {
        let _ = invalidation;
    }
}

impl Observer for () {
    type Tag = ();
}

/// Why a miss happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MissKind {
    /// The node never held the granule.
    Cold,
    /// The node's copy was replaced.
    Replacement,
    /// The node's copy was invalidated, and the node uses a word that another node wrote.
    TrueSharing,
    /// The node's copy was invalidated, but the node uses no word that another node wrote.
    FalseSharing,
}

/// The place from which the data of a miss came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Memory; in a page-based shared memory, no copy at all.
    Memory,
    /// The clean copy of a node.
    Clean(u32),
    /// The dirty copy of a node.
    Dirty(u32),
}

/// The reason for which a copy's lifetime ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Another node wrote.
    Invalidated,
    /// The copy was replaced to make room.
    Replaced,
    /// The trace ended.
    Finished,
}

/// A miss whose lifetime has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Miss<T> {
    /// The first byte of the granule.
    pub line: Address,
    /// The node that missed.
    pub node: u32,
    /// The kind of the miss.
    pub kind: MissKind,
    /// Whether the missing access wrote.
    pub write: bool,
    /// The place from which the data came.
    pub source: Source,
    /// The reason for which the lifetime ended.
    pub end: End,
    /// The tag of the missing access.
    pub tag: T,
}

/// A write to a copy that was read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upgrade<T> {
    /// The first byte of the granule.
    pub line: Address,
    /// The writing node.
    pub node: u32,
    /// The number of other nodes' copies that it invalidated.
    pub invalidated: u32,
    /// The tag of the write.
    pub tag: T,
}

/// A copy that a write invalidated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalidation<T> {
    /// The first byte of the granule.
    pub line: Address,
    /// The node that had the copy.
    pub victim: u32,
    /// The tag of the access that had brought the copy.
    pub victim_tag: T,
    /// The writing node.
    pub writer: u32,
    /// The tag of the write.
    pub tag: T,
}
