//! The options of all benchmarks. Filled by the command line; every benchmark reads them.

/// The options of all benchmarks.
#[derive(Debug, Clone)]
pub struct Options {
    /// Only workloads whose name contains this.
    pub only: String,
    /// Runs of each variant.
    pub repetitions: u32,
    /// How many times the size of the tests.
    pub scale: u64,
}
