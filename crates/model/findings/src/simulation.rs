//! What replays add to a result: misses of the simulated machine, what changes would do
//! to them, what pages and other lines would make of a finding.

use crate::schema::Sharing;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What changes to single objects, or another allocator, would do to the misses of the
/// simulated machine. Each was simulated alone, with all accesses of the trace.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct WhatIf {
    /// The changes, the one that saves most misses first, of equal ones the one that takes
    /// fewer bytes.
    pub changes: Vec<Tried>,
    /// Replays of the trace that all of it took.
    pub replays: u32,
    /// Seconds that these took.
    pub seconds: f64,
}

/// A change that was tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Tried {
    /// The rank of the finding that it is for; none: for the heap as a whole.
    pub finding: Option<u32>,
    /// The change in words.
    pub change: String,
    /// The arguments of `sunder simulate` that make it.
    pub arguments: Vec<String>,
    /// How many misses of all kinds the machine has less than without it; negative if
    /// there are more.
    pub misses_saved: i64,
    /// The same of false-sharing misses.
    pub false_saved: i64,
    /// False-sharing misses that are left on the finding's objects, or of the machine.
    pub false_left: u64,
    /// Bytes that the objects take more at most; of an allocation policy, that its pages
    /// take more than those of one heap for all.
    pub bytes: u64,
}

/// How an object would be shared elsewhere, by simulation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Predicted {
    /// With lines of other sizes, ascending.
    pub line_sizes: Vec<OnLines>,
    /// If the object started elsewhere in its line, by ascending offset; empty where two
    /// objects meet or the object can't be moved. Other objects are left out of its lines.
    pub starts: Vec<AtStart>,
}

/// Misses on an object with lines of one size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnLines {
    /// Bytes of a line.
    pub line_size: u32,
    /// Misses that bring what another thread wrote.
    pub true_sharing: u64,
    /// Misses for nothing.
    pub false_sharing: u64,
}

/// Misses on an object that starts at one place in a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AtStart {
    /// Bytes from the start of the line.
    pub offset: u32,
    /// Misses that bring what another thread wrote.
    pub true_sharing: u64,
    /// Misses for nothing.
    pub false_sharing: u64,
}

/// A machine on which a trace was replayed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Simulation {
    /// Bytes that are kept coherent as a whole.
    pub granule: u64,
    /// Nodes with caches of their own.
    pub nodes: u32,
    /// `MSI`, `MESI` or `MESIF`.
    pub protocol: String,
    /// The private caches of a node, in words.
    pub caches: String,
    /// Accesses of the trace.
    pub accesses: u64,
    /// Granules that were touched.
    pub granules: u64,
    /// Seconds that the simulation took.
    pub seconds: f64,
    /// Of the whole machine.
    pub totals: Simulated,
    /// Of each node, by its number.
    pub by_node: Vec<Simulated>,
    /// Whether only accesses to heap objects were simulated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub heap_only: bool,
    /// Where objects were laid, if not all stayed where they were recorded.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement: Option<Placement>,
}

/// Where a replay laid objects, and what that takes. Figures are of the heap objects
/// that were placed: all under a policy, else those that change.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Placement {
    /// `actual` (as recorded), `general`, `hoard`, `sized`, `call-site` or
    /// `sized-call-site`.
    pub policy: String,
    /// Changes to single objects, as on the command line.
    pub changes: Vec<String>,
    /// Bytes of a page.
    pub page: u64,
    /// Blocks that were placed.
    pub allocations: u64,
    /// Bytes asked for, of blocks freed or not: the sum in equation (2) of SCSTallocator.
    pub requested_bytes: u64,
    /// The most bytes that were live at a time.
    pub peak_bytes: u64,
    /// Buckets: kinds of blocks that share no page with others.
    pub buckets: u64,
    /// Pages with these buckets, equation (4).
    pub pages: u64,
    /// Pages of an allocator without buckets, equation (2).
    pub general_pages: u64,
    /// Additional pages, equation (5): at most as many as buckets.
    pub additional_pages: u64,
    /// Pages that the placement reached, where freed memory was used again.
    pub reached_pages: u64,
    /// The most bytes that changed objects took more than before.
    pub grown_bytes: u64,
    /// Blocks that could not be placed and stayed where they were recorded.
    pub unplaced: u64,
}

/// What a simulation counted. A reference is the part of an access that lies in
/// one granule; each is a hit, an upgrade or a miss of one kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Simulated {
    /// References.
    pub references: u64,
    /// References that needed nobody else.
    pub hits: u64,
    /// First misses of a node on a granule.
    pub cold: u64,
    /// Misses on granules that were replaced for want of room.
    pub replacement: u64,
    /// Misses that bring a word that another node wrote and this one uses.
    pub true_sharing: u64,
    /// Useless misses: no word that others wrote is used (Dubois and others, 1993).
    pub false_sharing: u64,
    /// Writes to a valid copy that had to ask for ownership.
    pub upgrades: u64,
    /// Copies of other nodes that writes destroyed.
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
/// misses on a page asks for one object; a write to one took the page from it before.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnPages {
    /// Bytes of a page.
    pub page: u64,
    /// Pages that moved for them; `lines` of the finding has the dearest.
    pub pages: u64,
    /// What was asked for and what was written, with most useless misses first.
    pub causes: Vec<PageCause>,
    /// Misses by thread.
    pub threads: Vec<ThreadMisses>,
}

/// Misses of one kind of cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageCause {
    /// Whether the finding's neighbour was asked for, not its object.
    pub neighbour_missed: bool,
    /// Whether the finding's neighbour was written, not its object.
    pub neighbour_written: bool,
    /// Misses that bring what another node wrote.
    pub true_sharing: u64,
    /// Misses for nothing.
    pub false_sharing: u64,
}

/// Misses of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadMisses {
    /// The kernel's thread id.
    pub id: u32,
    /// The thread's name.
    pub name: Option<String>,
    /// Misses that bring what another node wrote.
    pub true_sharing: u64,
    /// Misses for nothing.
    pub false_sharing: u64,
}

/// What a place in the code has to do with misses of a finding on pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SiteMisses {
    /// Its misses that bring what another node wrote.
    pub true_sharing: u64,
    /// Its misses for nothing.
    pub false_sharing: u64,
    /// Copies of other nodes that its writes destroyed.
    pub destroyed: u64,
}

/// What would be left of a finding if lines were smaller.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct OnSmallerLines {
    /// The size of these lines in bytes.
    pub line_size: u32,
    /// The kind of sharing that would be left; none if no two threads would meet.
    pub sharing: Option<Sharing>,
}

/// Where a latent finding would become real.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum LatentOn {
    /// A machine with lines of this many bytes.
    LineSize(u32),
    /// Another start of the object, moved by this many bytes from a line border.
    StartOffset(u32),
}
