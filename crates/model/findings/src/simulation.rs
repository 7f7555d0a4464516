//! The parts of a result that come from replays: the misses of the simulated machine, what
//! changes would do to them, and how a finding would be shared on pages and with other lines.

use crate::sharing::Sharing;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The effect of changes to single objects, or of another allocator, on the misses of the
/// simulated machine. Each change was simulated alone, with all accesses of the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct WhatIf {
    /// The changes. The one that saves most misses comes first; of equal ones, the one that
    /// takes fewer bytes.
    pub changes: Vec<Tried>,
    /// The number of replays of the trace.
    pub replays: u32,
    /// The time that these took, in seconds.
    pub seconds: f64,
}

/// A change that was tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Tried {
    /// The rank of the finding that the change is for; none if it is for the whole heap.
    pub finding: Option<u32>,
    /// The change in words.
    pub change: String,
    /// The arguments of `sunder simulate` that make it.
    pub arguments: Vec<String>,
    /// How many misses of all kinds the change saves; negative if it adds misses.
    pub misses_saved: i64,
    /// How many false-sharing misses the change saves; negative if it adds misses.
    pub false_saved: i64,
    /// The false-sharing misses that remain, on the finding's objects or of the whole machine.
    pub false_left: u64,
    /// By how many bytes the objects grow at most. For an allocation policy, by how many bytes
    /// its pages exceed those of one heap for all.
    pub bytes: u64,
}

/// How an object would be shared with other lines or starts, by simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Predicted {
    /// With lines of other sizes, ascending.
    pub line_sizes: Vec<OnLines>,
    /// With other starts of the object in its line, by ascending offset; empty if two objects
    /// share the line or the object can't be moved. Other objects on its lines are not
    /// simulated.
    pub starts: Vec<AtStart>,
}

/// Misses on an object with lines of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OnLines {
    /// Bytes of a line.
    pub line_size: u32,
    /// Misses that bring a value that another thread wrote.
    pub true_sharing: u64,
    /// Misses that bring no such value.
    pub false_sharing: u64,
}

/// Misses on an object with one start in its line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct AtStart {
    /// Bytes from the start of the line.
    pub offset: u32,
    /// Misses that bring a value that another thread wrote.
    pub true_sharing: u64,
    /// Misses that bring no such value.
    pub false_sharing: u64,
}

/// A machine on which a trace was replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Simulation {
    /// The granule of coherence in bytes.
    pub granule: u64,
    /// The number of nodes, each with caches of its own.
    pub nodes: u32,
    /// `MSI`, `MESI` or `MESIF`.
    pub protocol: String,
    /// A description of a node's private caches.
    pub caches: String,
    /// The number of accesses in the trace.
    pub accesses: u64,
    /// The number of granules that were touched.
    pub granules: u64,
    /// The time that the simulation took, in seconds.
    pub seconds: f64,
    /// The counts of the whole machine.
    pub totals: Simulated,
    /// The counts of each node, by its number.
    pub by_node: Vec<Simulated>,
    /// Whether only accesses to heap objects were simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heap_only: bool,
    /// Where objects were placed, if not all stayed where they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// Where a replay placed objects, and what that takes. The figures are those of the heap
/// objects that were placed: all objects under a policy, otherwise those that change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Placement {
    /// `actual` (as recorded), `general`, `hoard`, `sized`, `call-site` or
    /// `sized-call-site`.
    pub policy: String,
    /// Changes to single objects, as on the command line.
    pub changes: Vec<String>,
    /// Bytes of a page.
    pub page: u64,
    /// The number of blocks that were placed.
    pub allocations: u64,
    /// Requested bytes, of blocks freed or not: the sum in equation (2) of SCSTallocator.
    pub requested_bytes: u64,
    /// The most bytes that were live at one time.
    pub peak_bytes: u64,
    /// Buckets: kinds of blocks that share no page with others.
    pub buckets: u64,
    /// Pages with these buckets, equation (4).
    pub pages: u64,
    /// Pages of an allocator without buckets, equation (2).
    pub general_pages: u64,
    /// Additional pages, equation (5): at most as many as buckets.
    pub additional_pages: u64,
    /// Pages that the placement reached, with freed memory used again.
    pub reached_pages: u64,
    /// The most bytes by which changed objects grew.
    pub grown_bytes: u64,
    /// Blocks that could not be placed and stayed where they were recorded.
    pub unplaced: u64,
}

/// The counts of a simulation. A reference is the part of an access that lies in one granule;
/// each reference is a hit, an upgrade or a miss of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Simulated {
    /// References.
    pub references: u64,
    /// References that needed no request to another node or to memory.
    pub hits: u64,
    /// First misses of a node on a granule.
    pub cold: u64,
    /// Misses on granules that were replaced to make room.
    pub replacement: u64,
    /// Misses that bring a word that another node wrote and this one uses.
    pub true_sharing: u64,
    /// Useless misses: the node uses no word that others wrote (Dubois and others, 1993).
    pub false_sharing: u64,
    /// Writes to a valid copy that needed a request for ownership.
    pub upgrades: u64,
    /// Copies of other nodes that writes invalidated.
    pub invalidations: u64,
    /// Misses that another node's dirty copy answered (hit modified).
    pub hitm: u64,
    /// Misses that another node's clean copy answered.
    pub forwards: u64,
    /// Dirty copies written to memory.
    pub write_backs: u64,
}

impl std::ops::Add for Simulated {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            references: self.references + other.references,
            hits: self.hits + other.hits,
            cold: self.cold + other.cold,
            replacement: self.replacement + other.replacement,
            true_sharing: self.true_sharing + other.true_sharing,
            false_sharing: self.false_sharing + other.false_sharing,
            upgrades: self.upgrades + other.upgrades,
            invalidations: self.invalidations + other.invalidations,
            hitm: self.hitm + other.hitm,
            forwards: self.forwards + other.forwards,
            write_backs: self.write_backs + other.write_backs,
        }
    }
}

/// How objects of a finding took pages from each other, by replay of a trace. A node that
/// misses on a page accesses one object; before, a write to an object took the page from the
/// node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OnPages {
    /// Bytes of a page.
    pub page: u64,
    /// The number of pages that moved for them; the finding's `lines` has the one with the
    /// highest cost.
    pub pages: u64,
    /// The accessed and the written objects, with most useless misses first.
    pub causes: Vec<PageCause>,
    /// Misses by thread.
    pub threads: Vec<ThreadMisses>,
}

/// The misses with one pair of accessed and written object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PageCause {
    /// Whether the finding's neighbour was accessed, not its object.
    pub neighbour_missed: bool,
    /// Whether the finding's neighbour was written, not its object.
    pub neighbour_written: bool,
    /// Misses that bring a value that another node wrote.
    pub true_sharing: u64,
    /// Misses that bring no such value.
    pub false_sharing: u64,
}

/// Misses of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ThreadMisses {
    /// The kernel's thread id.
    pub id: u32,
    /// The thread's name.
    pub name: Option<String>,
    /// Misses that bring a value that another node wrote.
    pub true_sharing: u64,
    /// Misses that bring no such value.
    pub false_sharing: u64,
}

/// The part of one source line or instruction in the misses of a finding on pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SiteMisses {
    /// Its misses that bring a value that another node wrote.
    pub true_sharing: u64,
    /// Its misses that bring no such value.
    pub false_sharing: u64,
    /// Copies of other nodes that its writes invalidated.
    pub destroyed: u64,
}

/// The sharing that would remain of a finding if lines were smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OnSmallerLines {
    /// The size of these lines in bytes.
    pub line_size: u32,
    /// The kind of sharing that would remain; none if no two threads would share a line.
    pub sharing: Option<Sharing>,
}

/// The change with which a latent finding would become real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum LatentOn {
    /// A machine with lines of this many bytes.
    LineSize(u32),
    /// Another start of the object, moved by this many bytes from a line border.
    StartOffset(u32),
    /// More processors than the program was allowed to use, of which this is the number, or
    /// another schedule: threads that took turns would run at the same time.
    MoreCpusThan(u32),
}
