//! What the judge is fed with. The observers' values are borrowed; the judge
//! never asks where they came from, only how sure their order and time are.

use sunder_access::{Access, Address, CodeAddress, ThreadId, Time};

/// One sample in time: `period_ns` of a thread's CPU time, and what could be
/// decoded around the sampled instruction (design section 4.1).
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// When, on the monotonic clock.
    pub time: Time,
    /// Whose.
    pub thread: ThreadId,
    /// CPU time that the sample stands for, in ns.
    pub period_ns: u64,
    /// Exact accesses with their distance in instructions from the sampled one
    /// (negative: executed before). Their own `time` and `thread` are ignored.
    pub accesses: &'a [(Access, i16)],
    /// Instructions of the same block that touch memory at an address which
    /// the sample does not tell.
    pub near: &'a [CodeAddress],
}

/// What hardware watchpoints saw between two times: every access of the watched
/// words by the watched threads, up to the budget of hits.
#[derive(Clone, Copy, Debug)]
pub struct Burst<'a> {
    /// The watched words, 8 aligned bytes each.
    pub words: &'a [Address],
    /// When the watchpoints were armed.
    pub started: Time,
    /// When they were taken away.
    pub ended: Time,
    /// The hits, in order of time as far as known.
    pub accesses: &'a [Access],
}
