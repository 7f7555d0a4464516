//! One way to carry advice out: changes of the source, with what a person should know of them.

use crate::edit::Edits;

/// Changes that take one finding apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// What they do, as a sentence without its period.
    pub what: String,
    /// The changes.
    pub edits: Edits,
    /// What to think of, one sentence each, without its period.
    pub notes: Vec<String>,
    /// By how many bytes the data grow, where known.
    pub grows_by: Option<u64>,
}
