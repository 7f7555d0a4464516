//! What was done about findings while the program ran.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a live repair did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Repair {
    /// Whether it only looked.
    pub dry_run: bool,
    /// Why nothing could be moved in this program; none if something could.
    pub hindrance: Option<String>,
    /// What was moved, or would have been, in the order of time.
    pub moved: Vec<Moved>,
    /// What was left where it was, and why.
    pub refused: Vec<Unrepaired>,
}

/// Pages whose falsely shared bytes got lines of their own.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Moved {
    /// The object on them that cost most.
    pub object: String,
    /// The first page, in hexadecimal.
    pub address: String,
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
    /// Code that was replaced by copies.
    pub code: Vec<RewrittenCode>,
    /// How often a thread had to be sent to a copy.
    pub faults: u64,
    /// Of these, how often a copy had to be made or found.
    pub requests: u64,
    /// Why and when it was put back the last time; none if it stayed.
    pub rolled_back: Option<RolledBack>,
    /// How its threads got on before and after; none if that was not measured.
    #[serde(default)]
    pub progress: Option<Progress>,
    /// Why that was not measured; none if it was.
    #[serde(default)]
    pub unmeasured: Option<String>,
    /// What would mend it in the source: the first advice of its finding.
    #[serde(default)]
    pub fix: Option<String>,
    /// Every time that it was moved, the first one included.
    #[serde(default)]
    pub moves: Vec<Move>,
}

/// How threads got on before their bytes were moved and after.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Progress {
    /// How many times as fast, the geometric mean of the threads.
    pub gain: f64,
    /// Each that was measured.
    pub threads: Vec<ThreadProgress>,
}

/// How one thread got on: by a value that it changes by a steady amount as it works,
/// such as the counter of a loop.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ThreadProgress {
    /// Its number.
    pub thread: u32,
    /// By how much the value changed in a millisecond of the thread's CPU time, before.
    pub before: f64,
    /// The same after.
    pub after: f64,
    /// So many values agree on the ratio of the two.
    pub clocks: u32,
}

/// One time that bytes were moved.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Move {
    /// When, in seconds from the start.
    pub at_seconds: f64,
    /// Microseconds that moving took.
    pub took_microseconds: f64,
    /// How often a thread had to be sent to a copy.
    pub faults: u64,
    /// How many times as fast threads got on; none if that was not measured.
    pub gain: Option<f64>,
    /// Why and when it was put back; none if it stayed.
    pub rolled_back: Option<RolledBack>,
}

/// Bytes that moved together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct MovedGroup {
    /// Where they were, in hexadecimal.
    pub from: String,
    /// Where they went; empty if they did not.
    pub to: String,
    /// How many.
    pub bytes: u64,
    /// The threads that use them, by number.
    pub threads: Vec<u32>,
}

/// A function's code that runs as a copy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct RewrittenCode {
    /// The function, or the address of the first instruction.
    pub function: String,
    /// How many copies were made.
    pub copies: u32,
    /// Of these, how many hold a loop.
    pub loops: u32,
    /// The most operands of a copy that got another displacement and no guard. Of copies of
    /// single instructions, here and below, only if no copy holds a loop.
    pub direct: u32,
    /// The most operands of a copy with a guard.
    pub guarded: u32,
    /// The most values from memory that a copy compares with what is expected of them.
    #[serde(default)]
    pub checked: u32,
}

/// Moved bytes were put back.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RolledBack {
    /// Why.
    pub reason: String,
    /// When, in seconds from the start.
    pub at_seconds: f64,
}

/// Something that was left as it was.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Unrepaired {
    /// What.
    pub object: String,
    /// Its first contended line, in hexadecimal.
    pub address: String,
    /// Why.
    pub reason: String,
}
