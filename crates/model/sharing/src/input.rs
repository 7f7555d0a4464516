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
    /// The ways by which control may have come to the sampled instruction, if there are several.
    pub ways: Option<Ways<'a>>,
}

/// Instructions that may have been executed just before a sampled one.
#[derive(Clone, Copy, Debug)]
pub struct Ways<'a> {
    /// The instruction at which the ways join: the sampled one, or one shortly before it.
    pub at: CodeAddress,
    /// Instructions that touch memory, each on one of the ways to it.
    pub perhaps: &'a [CodeAddress],
}

/// What breakpoints on instructions saw of one thread in an execution burst.
#[derive(Clone, Copy, Debug)]
pub struct Execution<'a> {
    /// The time of the burst.
    pub time: Time,
    /// The thread.
    pub thread: ThreadId,
    /// The instruction at which the ways from the others join; the only one, if it is alone.
    pub at: CodeAddress,
    /// How often it was executed. The numbers are comparable: all were counted over the same time.
    pub passes: u32,
    /// The other instructions, and how often each was executed.
    pub executed: &'a [(CodeAddress, u32)],
    /// The accesses of all of these executions, with exact addresses.
    pub accesses: &'a [Access],
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
