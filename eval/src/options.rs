//! The options of all benchmarks. Filled by the command line; every benchmark reads them.

/// Which programs with known sharing are measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Set {
    /// `workloads/expected.toml`: what the papers describe; constants are learned from these.
    Workloads,
    /// `workloads/pairs/expected.toml`: written without a look at the detector; nothing is learned from
    /// these.
    Pairs,
}

/// The options of all benchmarks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Which programs.
    pub set: Set,
    /// Only workloads whose name contains this.
    pub only: String,
    /// With how many threads each; if empty, as many as the table says.
    pub threads: Vec<u32>,
    /// Runs of each variant.
    pub repetitions: u32,
    /// How many times the size of the tests.
    pub scale: u64,
}
