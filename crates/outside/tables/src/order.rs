//! The orders in which a trace's events can be numbered. They are those of replays.

use serde::{Deserialize, Serialize};

/// The order in which events are numbered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// As if each thread had a processor of its own; only synchronisation orders them.
    Parallel,
    /// The same, but who asks for a lock first gets it, whoever had it in the recording.
    Canonical,
    /// As recorded.
    Recorded,
}

impl Order {
    /// Its name, as the command line has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Parallel => "parallel",
            Self::Canonical => "canonical",
            Self::Recorded => "recorded",
        }
    }
}
