//! What debug information has answered before about a file, kept by the caller of [`crate::Names`], so
//! that the same file's debug information need not be read again. Reading it is what costs: a look at a
//! large program asks a few dozens of questions of hundreds of megabytes.
//!
//! Questions are about link addresses and types of one file. A type is named by where its entry stands
//! in the debug information, which is the same in every process. Answers that come from a memory may be
//! wrong, but no more than that: nothing in them is an address in a process, or a place in a table that is
//! used without a check.

use std::fmt::Debug;

/// Keeps answers. What it is given it need not keep.
pub trait Memory: Debug + Send + Sync {
    /// The answer to `question` about `file`, if it is known.
    fn recall(&self, file: &str, question: &str) -> Option<String>;

    /// Debug information has given this answer.
    fn remember(&self, file: &str, question: String, answer: String);
}

/// The place of a type's entry: unit and offset.
pub(crate) type Place = (u32, usize);
