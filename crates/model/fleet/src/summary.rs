//! The result: what a report of a fleet shows. All text in it is cleaned and cut already.

use serde::Serialize;
use sunder_findings::{Answer, Sharing};

/// The name that the result carries.
pub const FLEET_SCHEMA: &str = "sunder-fleet";
/// The version of its form.
pub const FLEET_VERSION: u32 = 1;

/// What all records told. Times are nanoseconds since 1970 by the clock of the machine that told them.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fleet {
    /// Always `sunder-fleet`.
    pub schema: &'static str,
    /// See [`FLEET_VERSION`].
    pub version: u32,
    /// The version of the `sunder` that made it.
    pub tool: &'static str,
    /// Whether anything was found; `inconclusive` if not, and no machine has looked closely.
    pub answer: Answer,
    /// The first record's time.
    pub first_unix_ns: u64,
    /// The last record's time.
    pub last_unix_ns: u64,
    /// CPU seconds that all objects cost, as far as samples show.
    pub lost_seconds: f64,
    /// Of these, those of objects whose records are not among what was read.
    pub unnamed_lost_seconds: f64,
    /// The objects that are shared falsely, the dearest first.
    pub objects: Vec<FleetObject>,
    /// The machines, that with the most lost CPU seconds first.
    pub hosts: Vec<FleetHost>,
    /// The containers with objects, the dearest first.
    pub containers: Vec<FleetContainer>,
    /// What was read, and what could not be.
    pub reading: Reading,
}

/// An object, by its fingerprint: the same on all machines, in all builds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetObject {
    /// As in a record of a finding.
    pub fingerprint: String,
    /// The object in a few words.
    pub object: String,
    /// The kind of sharing.
    pub sharing: Sharing,
    /// Where it is declared or allocated, or else used: `file:line`.
    pub place: Option<String>,
    /// What to do about it.
    pub advice: Option<String>,
    /// The file names of its programs.
    pub programs: Vec<String>,
    /// CPU seconds that it cost.
    pub lost_seconds: f64,
    /// The share of its threads' time in percent, as each machine told last: the middle one.
    pub cost_percent: f64,
    /// The highest of these.
    pub highest_percent: f64,
    /// On how many machines it was seen.
    pub hosts: u64,
    /// On how many of them it is there, as each told last.
    pub there_on: u64,
    /// On how many nobody has looked at its program since it was seen. On the others it is gone.
    pub not_looked_at_on: u64,
    /// In how many processes it was seen.
    pub processes: u64,
    /// When it was seen first.
    pub first_unix_ns: u64,
    /// When it was seen last.
    pub last_unix_ns: u64,
    /// The builds of its programs, in the order in which they appeared.
    pub builds: Vec<BuildCost>,
    /// Builds that are not listed, because there are too many.
    pub more_builds: u64,
}

/// An object in a build of a program.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BuildCost {
    /// The build id in hexadecimal; absent if the program has none.
    pub build_id: Option<String>,
    /// The program's version, as it was told last; absent if nothing tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The program's path, or its name.
    pub path: String,
    /// Machines on which this build was looked at, or the object was seen in it.
    pub hosts: u64,
    /// Close looks at processes of this build.
    pub looks: u64,
    /// When this build was seen first.
    pub first_unix_ns: u64,
    /// When it was seen last.
    pub last_unix_ns: u64,
    /// The share of the threads' time in percent, the middle one of the machines; absent if the object
    /// was not seen in this build.
    pub cost_percent: Option<f64>,
    /// CPU seconds that the object cost in this build.
    pub lost_seconds: f64,
    /// What this build changed.
    pub step: Step,
}

/// What a build changed about an object, compared with the last build before it of which something is
/// known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Step {
    /// It was there in the first build that was seen.
    First,
    /// It was not seen in this build, nor in one before.
    NotYet,
    /// It was not seen before, and was in this build.
    Brought,
    /// It was seen before, and not in this build.
    Mended,
    /// It costs more, by a factor of two and two points at least.
    Grew,
    /// It costs less, by a factor of two and two points at least.
    Shrank,
    /// It costs about as much.
    Same,
    /// It was not seen before, nor in this build.
    StillAbsent,
    /// This build was looked at too seldom to tell.
    Unknown,
}

/// A machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FleetHost {
    /// Its name.
    pub host: String,
    /// How often a watch began, as far as was read.
    pub watches: u64,
    /// Its first record's time.
    pub first_unix_ns: u64,
    /// Its last record's time.
    pub last_unix_ns: u64,
    /// For how long it was watched.
    pub seconds: f64,
    /// CPU seconds that objects cost there.
    pub lost_seconds: f64,
    /// Objects that were seen there.
    pub objects: u64,
    /// Objects that are there, as it told last.
    pub there: u64,
    /// Samples of all processes.
    pub samples: u64,
    /// Samples of processes that were looked at closely.
    pub samples_looked_at: u64,
    /// Of these, those without a known address.
    pub samples_unattributed: f64,
    /// Close looks.
    pub looks: u64,
    /// Close looks whose result was lost.
    pub looks_failed: u64,
    /// Close looks whose findings are named by symbols alone.
    pub looks_by_symbols: u64,
    /// Samples that the kernel dropped.
    pub lost_records: u64,
    /// Records that the watch could not hand over.
    pub records_dropped: u64,
    /// CPU seconds that the watch took itself.
    pub own_cpu_seconds: f64,
    /// CPU seconds that its interrupts took from programs, at most.
    pub interrupt_seconds: f64,
    /// Why there may be more than was found.
    pub blind: Vec<Blind>,
}

/// Why a machine may have more than was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Blind {
    /// No record of how its watch is doing was read.
    NoStatus,
    /// Nothing was sampled.
    NoSamples,
    /// No process was looked at closely.
    NoLooks,
    /// The results of half of the close looks or more were lost.
    LooksFailed,
    /// The address is not known for half of the samples or more.
    Unattributed,
    /// The kernel dropped more than one sample in a hundred.
    SamplesLost,
    /// The watch could not hand over some of its records.
    RecordsDropped,
}

impl Blind {
    /// Whether "nothing was found" says nothing.
    pub const fn is_whole(self) -> bool {
        matches!(
            self,
            Self::NoStatus | Self::NoSamples | Self::NoLooks | Self::LooksFailed
        )
    }
}

impl FleetHost {
    /// Whether a finding would have been seen there.
    pub fn has_looked(&self) -> bool {
        !self.blind.iter().any(|blind| blind.is_whole())
    }
}

/// A container.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FleetContainer {
    /// Its number.
    pub container: String,
    /// The machine.
    pub host: String,
    /// Its programs with objects.
    pub programs: Vec<String>,
    /// CPU seconds that objects cost in it.
    pub lost_seconds: f64,
    /// Objects that were seen in it.
    pub objects: u64,
}

/// What was read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Files that were read.
    pub files: u64,
    /// Records, also those that were read twice.
    pub records: u64,
    /// Lines and batches that are no records: damaged, or of other programs.
    pub damaged: u64,
    /// Records of a newer version, which were left out.
    pub newer: u64,
    /// Files whose last line is not whole. A watch may be writing it.
    pub cut_off: u64,
    /// Files that could not be read, or only in part.
    pub unread: u64,
    /// The names of some of them, with the reason.
    pub unread_names: Vec<String>,
    /// Entries of folders that were not opened: links, pipes, devices, and what lies too deep.
    pub passed_over: u64,
    /// Facts that were left out because a table was full.
    pub left_out: u64,
}
