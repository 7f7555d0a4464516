//! What `sunder watch` tells of a machine: one record for each finding that appears, changes or goes
//! away, and one now and then about the watcher itself. A line of JSON each. The finding is that of a
//! result; what is added says where it was seen.

use crate::schema::Finding;
use serde::{Deserialize, Serialize};

/// The name that every record carries.
pub const WATCH_SCHEMA: &str = "sunder-watch";
/// The version of the records' format.
pub const WATCH_VERSION: u32 = 1;

/// One record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// About a finding.
    Finding(Box<Watched>),
    /// About the watcher.
    Status(Box<WatchStatus>),
}

/// What became of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Happening {
    /// It is there, in a look that is not repeated.
    Present,
    /// It was not there before.
    Appeared,
    /// Its cost has changed by a factor of two or more.
    Changed,
    /// It was there and is not any more, or its process has ended.
    Gone,
}

impl Happening {
    /// The word in records.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Present => "present",
            Self::Appeared => "appeared",
            Self::Changed => "changed",
            Self::Gone => "gone",
        }
    }
}

/// A finding in a process of a machine.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Watched {
    /// Always `sunder-watch`.
    pub schema: String,
    /// See [`WATCH_VERSION`].
    pub version: u32,
    /// The version of the `sunder` that wrote it.
    pub tool: String,
    /// When, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// What became of it.
    pub event: Happening,
    /// Its identity across runs, builds and machines: [`crate::fingerprint()`].
    pub fingerprint: String,
    /// Where it was seen.
    pub origin: Origin,
    /// The cost in percent that the last record of it told; absent in the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub before_percent: Option<f64>,
    /// The finding. Of one that is gone, what was known last.
    pub finding: Finding,
}

/// A process of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Origin {
    /// The machine's name.
    pub host: String,
    /// The process's number.
    pub pid: u32,
    /// When it began, in clock ticks after the machine: with `pid`, its identity.
    pub started_ticks: u64,
    /// The file name of its program.
    pub program: String,
    /// The path of its program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// The build id of its program, in hexadecimal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// The version of its program: what the process's environment says of the service
    /// (`service.version` in `OTEL_RESOURCE_ATTRIBUTES`), or else what the program's file says of its
    /// package. Anybody's words, which are not checked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Its control group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cgroup: Option<String>,
    /// The number of its container, as in the name of the control group: 64 hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// Its unit of systemd.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unit: Option<String>,
}

/// How the watcher is doing. Counts and seconds are since it began.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WatchStatus {
    /// Always `sunder-watch`.
    pub schema: String,
    /// See [`WATCH_VERSION`].
    pub version: u32,
    /// When, in nanoseconds since 1970.
    pub time_unix_ns: u64,
    /// The machine's name.
    pub host: String,
    /// When the watch began, in nanoseconds since 1970: the same in all records of one watch. With the
    /// machine's name it identifies the watch, since counts begin at 0 in each.
    #[serde(default)]
    pub begun_unix_ns: u64,
    /// For how long it has watched.
    pub seconds: f64,
    /// Samples of all processes.
    pub samples: u64,
    /// Records that the kernel dropped.
    pub lost_records: u64,
    /// Samples of processes that were looked at closely.
    pub samples_looked_at: u64,
    /// Those of them for which the address of the access is not known.
    pub samples_unattributed: f64,
    /// Samples a second on each CPU, now.
    pub frequency_hz: u32,
    /// CPUs that are sampled.
    pub cpus: u32,
    /// Processes with samples, now.
    pub processes: u64,
    /// How often a process was looked at closely.
    pub looks: u64,
    /// Looks whose result was lost: the process that names the data failed or ran out of time.
    pub looks_failed: u64,
    /// Looks whose findings are named by symbols alone: debug information took too much time or memory.
    #[serde(default)]
    pub looks_by_symbols: u64,
    /// CPU seconds of the watcher itself.
    pub own_cpu_seconds: f64,
    /// CPU seconds that its interrupts took from other programs, at most.
    pub interrupt_seconds: f64,
    /// What both may take, in percent of one CPU; 0 for `--once`, which has no budget.
    pub budget_percent: f64,
    /// What both took lately, in percent of one CPU.
    pub spent_percent: f64,
    /// Resident memory of the watcher, in bytes.
    pub memory_bytes: u64,
    /// Records that could not be handed to the sinks.
    pub records_dropped: u64,
    /// The findings that are there.
    #[serde(default)]
    pub present: Vec<Present>,
    /// The programs that were looked at closely since the last status, whatever was found. Without them
    /// "nothing was found" could not be told from "nobody has looked".
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub looked: Vec<Looked>,
}

/// A build of a program that was looked at closely.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Looked {
    /// As in [`Origin`].
    pub program: String,
    /// As in [`Origin`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// As in [`Origin`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// As in [`Origin`]; of several, that of the last look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// Close looks since the watch began that came to a result.
    pub looks: u64,
    /// Samples of these looks. Records that were written before these were counted have none here, nor in
    /// the next field.
    #[serde(default)]
    pub samples: u64,
    /// Of those, samples for which the address of the access is not known.
    #[serde(default)]
    pub samples_unattributed: f64,
    /// When the first of them ended, in nanoseconds since 1970.
    pub first_unix_ns: u64,
    /// When the last of them ended.
    pub last_unix_ns: u64,
}

/// A finding that is there.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Present {
    /// As in [`Watched`].
    pub fingerprint: String,
    /// The object, in a few words.
    pub object: String,
    /// As in [`Origin`].
    pub program: String,
    /// As in [`Origin`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// As in [`Origin`].
    pub pid: u32,
    /// As in [`Origin`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build_id: Option<String>,
    /// When it appeared in this process, in nanoseconds since 1970. A finding that was gone and comes
    /// again has appeared anew.
    #[serde(default)]
    pub appeared_unix_ns: u64,
    /// The cost of the finding, in percent of its threads' time.
    pub cost_percent: f64,
    /// CPU seconds that it has cost since it appeared, as far as samples show.
    pub lost_seconds: f64,
}
