//! What a fix gains: as it was measured, and on a machine with more CPUs.

#[cfg(feature = "schema")]
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// What a fix gains, in percent of the program's wall time, 0 to 100: a program that takes 10 s and
/// gains 60 percent takes 4 s after the fix. The truth is between `low` and `high` nine times of ten.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct GainPercent {
    /// A lesser gain is unlikely.
    pub low: f64,
    /// The best guess.
    pub likely: f64,
    /// A greater gain is unlikely.
    pub high: f64,
    /// How many times threads were compared with and without their rivals.
    pub comparisons: u32,
}

/// How many times as fast a program is with a fix as without on a machine with more CPUs, with a thread
/// on each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(JsonSchema))]
pub struct OnMoreCpus {
    /// The number of CPUs of that machine.
    pub cpus: u32,
    /// The best guess, at least 1.
    pub times_as_fast: f64,
    /// Less is unlikely.
    pub low: f64,
    /// More is unlikely.
    pub high: f64,
}
