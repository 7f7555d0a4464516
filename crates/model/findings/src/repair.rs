//! The record of a live repair in a result. Written by `repair`, read by reports.

use crate::object::Object;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sunder_access::Address;

/// What a live repair did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Repair {
    /// Whether it only observed and moved nothing.
    pub dry_run: bool,
    /// Why nothing could be moved in this program; none if something could.
    pub hindrance: Option<String>,
    /// What was moved, or would have been in a dry run, in order of time.
    pub moved: Vec<Moved>,
    /// What was left in its place, and why.
    pub refused: Vec<Unrepaired>,
}

/// What `sunder cure` did beside moving bytes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Cure {
    /// The objects of which threads got private copies while they computed, in order of time.
    pub isolated: Vec<IsolatedObject>,
    /// The heap objects that got cache lines of their own when they were allocated, in order of time.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub placed: Vec<PlacedObject>,
}

/// Heap objects that got cache lines of their own when they were allocated.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct PlacedObject {
    /// One of them, with the calls that allocated it. From then on all blocks that these calls allocate
    /// are placed so.
    pub object: Object,
    /// From when on, in seconds from the start; 0 if a plan said so.
    pub from_seconds: f64,
}

/// An object of which threads got private copies.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct IsolatedObject {
    /// Its name.
    pub object: String,
    /// Its first byte, in hexadecimal.
    #[serde(with = "crate::address::known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: Address,
    /// Its size in bytes; of two objects that share a line, of both together.
    pub bytes: u64,
    /// When it was isolated, in seconds from the start.
    pub at_seconds: f64,
    /// The share of its threads' time that the sharing cost at most by then, in percent.
    pub cost_percent: f64,
    /// How often two consecutive commits to one of its lines were by two threads. A thread's commit
    /// counts once, however often the thread wrote before it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_writes: Option<u64>,
    /// Its threads' progress before they were isolated, and while they were. Absent if it was not
    /// measured. Of objects that were isolated at once, all have the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub progress: Option<Progress>,
    /// Why it was shared again while the program ran, if it was because isolating it did not help.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_vain: Option<String>,
}

/// Pages whose falsely shared bytes got lines of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Moved {
    /// The object on these pages that cost most.
    pub object: String,
    /// The first page, in hexadecimal.
    #[serde(with = "crate::address::known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: Address,
    /// Bytes of the pages.
    pub bytes: u64,
    /// The groups of bytes that were taken apart.
    pub groups: Vec<MovedGroup>,
    /// The share of its threads' time that the sharing cost at most, in percent.
    pub cost_percent: f64,
    /// When it was moved, in seconds from the start.
    pub at_seconds: f64,
    /// Microseconds that moving took.
    pub took_microseconds: f64,
    /// The code that was replaced by copies.
    pub code: Vec<RewrittenCode>,
    /// How often a thread faulted and had to be sent to a copy.
    pub faults: u64,
    /// How many of these faults had to be answered by the tool, which made or found a copy.
    pub requests: u64,
    /// Why and when the bytes were put back the last time; none if they stayed.
    pub rolled_back: Option<RolledBack>,
    /// The threads' progress before and after; none if it was not measured.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Why progress was not measured; none if it was.
    #[serde(default)]
    pub unmeasured: Option<String>,
    /// The fix in the source: the first advice of the finding.
    #[serde(default)]
    pub fix: Option<String>,
    /// Every time that the bytes were moved, including the first.
    #[serde(default)]
    pub moves: Vec<Move>,
}

/// The threads' progress before and after their bytes were moved, or before they were isolated and
/// since.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Progress {
    /// Progress after the change divided by progress before, as the geometric mean of the threads.
    pub gain: f64,
    /// The threads whose progress was measured.
    pub threads: Vec<ThreadProgress>,
}

/// A thread's progress, measured by a value that the thread changes by a steady amount as it
/// works, such as the counter of a loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ThreadProgress {
    /// The kernel's thread id.
    pub thread: u32,
    /// The value's change in a millisecond of the thread's CPU time, before the change.
    pub before: f64,
    /// The same after the change.
    pub after: f64,
    /// The number of values that agree on the ratio of the two.
    pub clocks: u32,
}

/// One time that bytes were moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Move {
    /// When the bytes were moved, in seconds from the start.
    pub at_seconds: f64,
    /// Microseconds that moving took.
    pub took_microseconds: f64,
    /// How often a thread faulted and had to be sent to a copy.
    pub faults: u64,
    /// The threads' progress after the move divided by that before; none if it was not
    /// measured.
    pub gain: Option<f64>,
    /// The faults over time: how many there had been at which moment, at the looks that found more
    /// than the one before. Threads come to copies of code by faults, so a move is complete when
    /// there are no more (Plastic, Figure 9).
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub faults_over_time: Vec<FaultsSoFar>,
    /// Why and when the bytes were put back; none if they stayed.
    pub rolled_back: Option<RolledBack>,
}

/// How many faults there had been at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct FaultsSoFar {
    /// The moment, in seconds from the start.
    pub at_seconds: f64,
    /// The faults since the bytes were moved.
    pub faults: u64,
}

/// A group of bytes that moved together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct MovedGroup {
    /// Where they were, in hexadecimal.
    #[serde(with = "crate::address::known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub from: Address,
    /// Where they went; empty if they did not.
    #[serde(with = "crate::address::or_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub to: Option<Address>,
    /// The number of bytes.
    pub bytes: u64,
    /// The threads that use them, by number.
    pub threads: Vec<u32>,
}

/// A function whose code runs as a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct RewrittenCode {
    /// The function's name, or the address of the first instruction.
    pub function: String,
    /// The number of copies.
    pub copies: u32,
    /// How many of these copies hold a loop.
    pub loops: u32,
    /// The most operands of one copy that got another displacement and no guard. Here and in
    /// the next two fields, copies of single instructions count only if no copy holds a loop.
    pub direct: u32,
    /// The most operands of a copy with a guard.
    pub guarded: u32,
    /// The most values from memory that one copy compares with expected values.
    #[serde(default)]
    pub checked: u32,
}

/// A rollback: moved bytes were put back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct RolledBack {
    /// The reason.
    pub reason: String,
    /// When, in seconds from the start.
    pub at_seconds: f64,
}

/// An object that was left in its place.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Unrepaired {
    /// The object.
    pub object: String,
    /// Its first contended line, in hexadecimal.
    #[serde(with = "crate::address::or_empty")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: Option<Address>,
    /// The reason.
    pub reason: String,
}
