//! Replays a trace in parts. With infinite caches the coherence of a line does not depend on other
//! lines, so a trace that was cut by line ([`sunder_tables`]) can be replayed bucket by bucket, on
//! any number of machines. [`replay`] makes a [`Part`] of some buckets; [`merge`] makes the same
//! result of all parts as [`crate::simulate`] makes of the trace. What can't be cut by line is
//! refused.
//!
//! Names are not part of a part: only the merge reads debug information, so machines that replay
//! buckets need neither the program nor its libraries.

mod bucket;
mod merge;
mod pages;
mod part;

#[cfg(test)]
mod tests;

pub use bucket::replay;
pub use merge::merge;
pub use part::Part;
