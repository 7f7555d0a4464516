//! The format of a result, as it is in a JSON file. It is published as JSON Schema through
//! `schemars`: these comments are the descriptions there. A change that an older reader can't
//! follow raises [`VERSION`].

use crate::gain::{GainPercent, OnMoreCpus};
use crate::isolation::PrivatePage;
use crate::limit::Limit;
use crate::object::{Object, ProcessName};
use crate::repair::{Cure, Repair};
use crate::sharing::Sharing;
use crate::simulation::{
    LatentOn, OnPages, OnSmallerLines, Predicted, Simulated, Simulation, SiteMisses, WhatIf,
};
use crate::verdict::Verdict;
#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use sunder_access::{Address, CodeAddress};

/// The name that every result file carries.
pub const SCHEMA: &str = "sunder-findings";
/// The version of the schema that this crate reads and writes.
pub const VERSION: u32 = 1;

/// The result of one run.
///
/// [`Findings::default`] carries the right `schema` and `version`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Findings {
    /// Always `sunder-findings`.
    #[cfg_attr(feature = "schema", schemars(extend("const" = SCHEMA)))]
    pub schema: String,
    /// The schema's version; raised by changes that an older reader can't
    /// follow.
    #[cfg_attr(feature = "schema", schemars(extend("const" = VERSION)))]
    pub version: u32,
    /// The version of the `sunder` that wrote it.
    pub tool: String,
    /// The observed program.
    pub program: Program,
    /// The machine that it ran on.
    pub machine: Machine,
    /// How it was observed.
    pub run: Run,
    /// Whether false sharing was found that costs at least `run.threshold_percent`; if not, whether
    /// the run would have shown it. Absent in results of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<Verdict>,
    /// The processes that were seen running, in the order of their numbers. One that executed
    /// several programs is listed once for each.
    #[serde(default)]
    pub processes: Vec<Process>,
    /// The findings, ranked by cost, the highest first; latent ones after the present ones.
    pub findings: Vec<Finding>,
    /// What the run could not see, one sentence each.
    #[cfg_attr(feature = "schema", schemars(with = "Vec<String>"))]
    pub limits: Vec<Limit>,
    /// For a replayed trace, the machine that was simulated and what it counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
    /// For a replayed trace, the changes that were tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub what_if: Option<WhatIf>,
    /// For a program that was repaired while it ran, what was done.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub repair: Option<Repair>,
    /// For a program that `sunder cure` ran, what it did beside moving bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cure: Option<Cure>,
}

impl Default for Findings {
    fn default() -> Self {
        Self {
            schema: SCHEMA.to_owned(),
            version: VERSION,
            tool: String::new(),
            program: Program::default(),
            machine: Machine::default(),
            run: Run::default(),
            verdict: None,
            processes: Vec::new(),
            findings: Vec::new(),
            limits: Vec::new(),
            simulation: None,
            what_if: None,
            repair: None,
            cure: None,
        }
    }
}

/// The observed program.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Program {
    /// The command line; for an attached process, as `/proc` shows it.
    pub command: Vec<String>,
    /// The executable file, where known.
    pub path: Option<String>,
    /// How it ended, if it ended while it was observed.
    pub exit: Option<Exit>,
}

/// How a program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// It returned this status.
    Status(i32),
    /// This signal ended it.
    Signal(i32),
}

/// A process of the program: one address space, from its fork or `exec` to the
/// next `exec` or its end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Process {
    /// The kernel's process id.
    pub id: u32,
    /// The process that started it, where known.
    pub parent: Option<u32>,
    /// Its name: that of its first thread.
    pub name: Option<String>,
    /// The number of its threads that were seen.
    pub threads: u32,
    /// The number of samples taken of it.
    pub samples: u64,
    /// Whether its heap blocks were recorded.
    pub heap_recorded: bool,
}

/// The machine that the program ran on.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Machine {
    /// The CPU's model name.
    pub cpu: String,
    /// The number of CPUs that the program could run on.
    pub cpus: u32,
    /// The number of CPUs that are online; 0 if not known.
    #[serde(default)]
    pub cpus_online: u32,
    /// How much time control groups grant, in CPUs: 0.5 for half of the time of one. Absent if
    /// they set no quota.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_quota: Option<f64>,
    /// Bytes of a coherence granule.
    pub line_size: u32,
    /// Measured nanoseconds for one line to go from one core to another.
    pub transfer_ns: Option<f64>,
    /// Kernel release.
    pub kernel: String,
    /// Whether a hypervisor is present.
    pub virtualized: bool,
}

/// How the program was observed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Run {
    /// Seconds of wall time observed.
    pub seconds: f64,
    /// The number of threads that were seen, in all processes.
    pub threads: u32,
    /// The number of samples.
    pub samples: u64,
    /// Samples that were lost by the kernel or by Sunder.
    pub lost_samples: u64,
    /// Accesses with exactly known addresses.
    pub accesses: u64,
    /// Accesses trapped by hardware watchpoints.
    pub watched_accesses: u64,
    /// `perf`, `timer`, `pmu`, `isolate`, `import` or `trace`.
    pub observer: String,
    /// Samples a second and thread, highest and lowest used.
    pub frequency_hz: Option<(u32, u32)>,
    /// Findings that cost less than this share of time are not significant:
    /// they are kept in the result, and reports leave them out unless asked.
    pub threshold_percent: f64,
    /// Seconds from the start until a line was first seen to be contended.
    #[serde(default)]
    pub first_contention_seconds: Option<f64>,
    /// The cost of observing, in CPU seconds of Sunder's own process.
    pub observer_cpu_seconds: f64,
    /// CPU seconds of the program and of the children that it waited for, if Sunder started it.
    /// It is less than `seconds` times the number of threads if these waited for each other or
    /// for a processor.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program_cpu_seconds: Option<f64>,
    /// The share of `program_cpu_seconds`, 0 to 100, that children used, which were not looked at; 0 of
    /// children that the program did not wait for. Absent if there were none, or if they were followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub left_out_percent: Option<f64>,
    /// Whether what was looked at can write memory that other processes may have, too, which were not
    /// looked at.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub shares_memory: bool,
    /// For at most this share of the time in which a thread ran, 0 to 100, two ran at once on two
    /// CPUs. Absent if no samples were taken in time, if they do not tell their CPU, or if one thread
    /// did nearly all of the work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at_once_percent: Option<f64>,
    /// The CPU (the kernel's number) on which all threads ran, if it was one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_cpu: Option<u32>,
    /// Whether samples do not tell on which CPU they were taken, so that threads that share a CPU
    /// can't be told from others.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_cpu: bool,
    /// The share of the threads' time, 0 to 100, for which the address of the access that may have
    /// held the thread up is not known: its own instruction's, or the last one before it. Time in
    /// which it is one of a few known addresses counts as known unless there is contention. False
    /// sharing that hides in the rest is not found. Absent if no samples were taken in time.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unattributed_percent: Option<f64>,
    /// The functions to which most of that time belongs, the one with the most first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unattributed: Vec<Unattributed>,
}

/// A function with time for which the addresses of accesses are not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Unattributed {
    /// The function, demangled; `file+0x…` if it has no name.
    pub function: String,
    /// The file that holds its code.
    pub module: Option<String>,
    /// This time as a share of all time of the threads, 0 to 100.
    pub percent: f64,
}

/// One object, or a pair of neighbours, whose cache lines are shared.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Finding {
    /// The place in the report: 1 for the falsely shared object with the highest cost, if there is one.
    pub rank: u32,
    /// The kind of sharing.
    pub sharing: Sharing,
    /// True if the sharing did not happen in this run but would on another machine or layout;
    /// `latent_on` says which.
    pub latent: bool,
    /// For a latent finding: the line size, start alignment or number of processors with which
    /// the sharing would happen.
    pub latent_on: Option<LatentOn>,
    /// Whether hardware watchpoints (or an exact stream) confirmed the bytes and
    /// the interleaving; otherwise it rests on samples.
    pub confirmed: bool,
    /// The processes of the threads. There are several if the threads share memory of several
    /// processes.
    #[serde(default)]
    pub processes: Vec<ProcessName>,
    /// For a replayed trace, the counts of the simulation on its lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulated: Option<Simulated>,
    /// The object that the threads share falsely.
    pub object: Object,
    /// The other object on the line, if two distinct objects share it.
    pub neighbour: Option<Object>,
    /// The contended lines; of very many, those that cost most.
    pub lines: Vec<Line>,
    /// The number of contended lines that are not among `lines`.
    #[serde(default, skip_serializing_if = "crate::verdict::is_zero")]
    pub further_lines: u32,
    /// The instructions that touch the lines, the busiest first.
    pub sites: Vec<Site>,
    /// Changes of the accessing thread between consecutive accesses, one of the two a write,
    /// per second of the run: the number that could have happened in the time that the threads
    /// spent there, as far as samples show.
    pub interleavings_per_second: f64,
    /// How often two consecutive writes to one of its lines were by two threads (SHERIFF, section
    /// 4.3), as commits show: what a thread writes in an interval counts once. Absent unless the
    /// observer was `isolate`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_writes: Option<u64>,
    /// The share (0 to 1) of the interleavings that is between threads that touch disjoint bytes.
    pub false_share: f64,
    /// Of true sharing that watchpoints have seen: the share (0 to 1) of the interleavings that would be
    /// false if the samples alone were believed. Present where that is most of them. Watchpoints slow
    /// threads down, so that one may wait for the other more often than it does without them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sampled_false_share: Option<f64>,
    /// The share of the involved threads' time that samples show at the lines and that the sharing can
    /// have cost. It is neither a bound nor a prediction of what a fix gains: a wait may show
    /// elsewhere, and a thread may use it for other work. See `gain_percent`.
    pub cost_percent: f64,
    /// The share of the program's time that would go away if the object's data were taken apart.
    /// Absent if it was not measured, as with `detect --no-measure` and without `attach --measure`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gain_percent: Option<GainPercent>,
    /// How many times as fast that makes the program on a machine with more CPUs, by a model. Absent if
    /// the gain is, or if this machine has one CPU, or as many as that machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_more_cpus: Option<OnMoreCpus>,
    /// Under the observer `isolate`, the pages of its lines, of which threads had private copies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub private_pages: Vec<PrivatePage>,
    /// On pages: how its objects took pages from each other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_pages: Option<OnPages>,
    /// The sharing that would remain on a machine with smaller lines; none for predictions and
    /// in results of older versions.
    #[serde(default)]
    pub on_smaller_lines: Option<OnSmallerLines>,
    /// The sharing with other line sizes and starts, if that was simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predicted: Option<Predicted>,
    /// Interleavings per second over the run, in equal slices of time.
    pub timeline: Vec<f64>,
    /// What to do about it, the best first.
    pub advice: Vec<Advice>,
}

/// One contended line.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Line {
    /// Its first byte, `0x…`.
    #[serde(with = "crate::address::known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: Address,
    /// Position of the line's first byte relative to the object's first; negative
    /// if the object starts inside the line.
    pub object_offset: Option<i64>,
    /// Interleavings per second on this line.
    pub interleavings_per_second: f64,
    /// As for the finding, on this line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interleaved_writes: Option<u64>,
    /// What was touched, by ascending offset. Bytes that no thread touched are left out.
    pub words: Vec<Word>,
}

/// Adjacent bytes of a line that were accessed alike.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Word {
    /// Position in the line.
    pub offset: u32,
    /// Number of bytes, at most 8; on pages, of a range that the same threads use alike.
    pub size: u32,
    /// Path to the element and field, such as `counters[3].hits`; on pages, the object.
    pub field: Option<String>,
    /// The threads that touched it.
    pub threads: Vec<ThreadUse>,
}

/// The observed accesses of one thread to a word.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct ThreadUse {
    /// The kernel's thread id.
    pub id: u32,
    /// The thread's name.
    pub name: Option<String>,
    /// Its process, if the finding has threads of several processes.
    #[serde(default)]
    pub process: Option<u32>,
    /// Plain loads.
    pub reads: u64,
    /// Plain stores.
    pub writes: u64,
    /// Read-modify-writes, locked or not.
    pub updates: u64,
    /// The locked ones among the updates.
    pub atomics: u64,
}

/// A source line (or instruction) that touches the object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Site {
    /// The function, demangled.
    pub function: String,
    /// Source file.
    pub file: Option<String>,
    /// Source line, from 1.
    pub line: Option<u32>,
    /// `read`, `write`, `update` or `atomic`.
    pub kind: AccessKind,
    /// The threads that executed it.
    pub threads: Vec<u32>,
    /// Observed accesses; 0 for code that was found by analysis and not sampled.
    pub accesses: u64,
    /// For code that was found by analysis and not sampled: the lock function that it calls on
    /// the object.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calls: Option<String>,
    /// Whether the instruction is in a loop of its function; absent if the function was not
    /// analysed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub in_loop: Option<bool>,
    /// The instruction's address, `0x…`.
    #[serde(with = "crate::address::known")]
    #[cfg_attr(feature = "schema", schemars(with = "String"))]
    pub address: CodeAddress,
    /// The file that holds the code.
    pub module: Option<String>,
    /// The fields that it touches; on pages, the objects.
    pub fields: Vec<String>,
    /// On pages: its part in the misses.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misses: Option<SiteMisses>,
    /// The text of the source line, where the file was readable.
    pub source: Option<String>,
    /// The source around that line, by ascending line number; empty in results
    /// of older versions.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub excerpt: Vec<SourceLine>,
}

/// A line of a source file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct SourceLine {
    /// Its number, from 1.
    pub line: u32,
    /// Its text, with its indent.
    pub text: String,
}

/// What an instruction does to memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum AccessKind {
    /// Plain load.
    #[default]
    Read,
    /// Plain store.
    Write,
    /// Unlocked read-modify-write.
    Update,
    /// Locked read-modify-write.
    Atomic,
}

/// A change to the source.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct Advice {
    /// The kind of change, for tools.
    pub fix: Fix,
    /// The change in words, naming type, field or variable.
    pub text: String,
    /// By how many bytes the data grow, if known.
    pub grows_by: Option<u64>,
}

/// Kinds of change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Fix {
    /// Align the type (or element) to a line.
    Align,
    /// Put padding between fields, or regroup them.
    Separate,
    /// Give each thread a copy and combine at the end.
    PerThread,
    /// Keep the value in a local variable inside the loop.
    Hoist,
    /// Allocate so that two objects share no line.
    Allocate,
    /// Reduce how often the same bytes are written by all.
    ShareLess,
}
