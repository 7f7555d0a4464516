//! The input of the judge: samples and bursts, with borrowed accesses. The judge never asks
//! which observer they came from, only how certain their order and time are.

use sunder_access::{Access, Address, CodeAddress, ThreadId, Time};

/// One sample in time: `period_ns` of a thread's CPU time, and what could be
/// decoded around the sampled instruction (design section 4.1).
#[derive(Clone, Copy, Debug)]
pub struct Sample<'a> {
    /// The time of the sample, on the monotonic clock.
    pub time: Time,
    /// The sampled thread.
    pub thread: ThreadId,
    /// CPU time that the sample stands for, in ns.
    pub period_ns: u64,
    /// Exact accesses with their distance in instructions from the sampled one
    /// (negative: executed before). Their own `time` and `thread` are ignored.
    pub accesses: &'a [(Access, i16)],
    /// Instructions of the same block that touch memory at an address that the sample does not
    /// tell.
    pub near: &'a [CodeAddress],
}

/// What hardware watchpoints saw between two times: every access to the watched words by the
/// watched threads, until the budget of hits was used up.
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
