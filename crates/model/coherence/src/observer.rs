//! What a caller may be told while the trace runs: by its own tags, so that it
//! can count by object, call site, instruction or thread. An observer that does
//! not override a hook pays nothing for it.

use sunder_access::Address;

/// Told of events, with the tags of the accesses that caused them. `()` observes
/// nothing and costs nothing.
pub trait Observer {
    /// What the caller attaches to an access; copied into each lifetime that a
    /// miss begins, so keep it small. `()` if tags are not wanted.
    type Tag: Copy;

    /// A miss was classified, because its lifetime ended. For a miss at the
    /// beginning of the trace that can be at its end.
    fn miss(&mut self, miss: &Miss<Self::Tag>) {
        let _ = miss;
    }

    /// A node wrote to a copy that it could only read.
    fn upgrade(&mut self, upgrade: &Upgrade<Self::Tag>) {
        let _ = upgrade;
    }

    /// A write destroyed a copy. The miss that had brought it was told just before.
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
    /// The node's copy was invalidated, and it uses a word that another wrote.
    TrueSharing,
    /// The node's copy was invalidated for nothing.
    FalseSharing,
}

/// Who answered a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Source {
    /// Memory, or for pages nobody yet.
    Memory,
    /// The clean copy of a node.
    Clean(u32),
    /// The dirty copy of a node.
    Dirty(u32),
}

/// What ended a copy's lifetime.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum End {
    /// Another node wrote.
    Invalidated,
    /// It had to make room.
    Replaced,
    /// The trace was over.
    Finished,
}

/// A miss whose lifetime is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Miss<T> {
    /// The first byte of the granule.
    pub line: Address,
    /// Who missed.
    pub node: u32,
    /// Why.
    pub kind: MissKind,
    /// Whether the missing access wrote.
    pub write: bool,
    /// Who answered.
    pub source: Source,
    /// What ended the lifetime.
    pub end: End,
    /// The tag of the missing access.
    pub tag: T,
}

/// A write to a copy that could only be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Upgrade<T> {
    /// The first byte of the granule.
    pub line: Address,
    /// Who wrote.
    pub node: u32,
    /// How many copies of others it destroyed.
    pub invalidated: u32,
    /// The tag of the write.
    pub tag: T,
}

/// A copy that a write destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Invalidation<T> {
    /// The first byte of the granule.
    pub line: Address,
    /// Whose copy it was.
    pub victim: u32,
    /// The tag of the access that had brought the copy.
    pub victim_tag: T,
    /// Who wrote.
    pub writer: u32,
    /// The tag of the write.
    pub tag: T,
}
