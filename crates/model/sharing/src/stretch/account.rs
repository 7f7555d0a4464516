//! What goes into the arithmetic of a stretch, and what comes out of it. Used by the files beside it;
//! it computes nothing but whether two threads were ever there together.

use crate::bytes::ByteState;
use crate::footprint::Footprints;
use crate::pairs::PairChanges;
use sunder_access::ThreadId;

/// How a touch became known, as far as the arithmetic cares.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Decoded from a sample in time. Entries of equal time and thread belong to one sample;
    /// the first of them carries the sample's time.
    Timed,
    /// Time that a sample probably spent here, without footprint and order.
    Near,
    /// An access that stands for a known number of accesses, such as a PMU event.
    Counted,
    /// An access in a complete sequence.
    Exact,
    /// The last touch of the previous stretch. It only serves the order of exact touches.
    Seed,
}

/// One touch of the line.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub time: u64,
    /// The thread's index in the line.
    pub thread: u16,
    /// Index of the footprint; meaningless for `Near`.
    pub footprint: u16,
    pub class: Class,
    /// CPU time of the thread that the touch stands for and that other threads may have cost,
    /// ns.
    pub spent_ns: f32,
    /// Accesses that the touch stands for.
    pub count: u32,
    /// The CPU that the thread ran on, or [`ANY_CPU`].
    pub cpu: u16,
}

/// The CPU of an access that does not tell its CPU.
pub(crate) const ANY_CPU: u16 = u16::MAX;

/// What a stretch tells about one thread.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ThreadAccount {
    /// The number of visits (samples or accesses), and of those that wrote.
    pub(super) visits: u32,
    pub(super) writing: u32,
    pub(super) first: u32,
    pub(super) last: u32,
    pub(super) spent_ns: f64,
    /// The CPU that all its visits so far were on, if it is one.
    pub(super) cpu: Option<u16>,
    /// Whether another thread conflicted with it.
    pub conflicting: bool,
    /// Upper bound of the time that it lost on the line.
    pub lost_ns: f64,
}

/// What a stretch adds to a line's verdict.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub threads: Vec<ThreadAccount>,
    /// Visits between two conflicting visits of other threads, and how many there would be in
    /// random order.
    pub isolated: u32,
    pub isolated_expected: f64,
    /// Changes of thread among sampled accesses, if their order were random: on the line as it
    /// is, and with every cluster of bytes on a line of its own.
    pub changes: f64,
    pub separate: f64,
    /// The same two numbers by pair of threads, for the busiest threads.
    pub pairs: Vec<PairChanges<f64>>,
    /// The same as `changes`, for PMU events alone.
    pub counted_changes: f64,
    /// `changes` and `separate` as counted in complete sequences.
    pub exact_changes: u64,
    pub exact_separate: u64,
    /// The same by pair of threads.
    pub exact_pairs: Vec<PairChanges<u64>>,
    /// For each entry, whether it is part of the contention.
    pub active: Vec<bool>,
    /// State of each byte; empty if there was no conflict.
    pub bytes: Vec<ByteState>,
}

impl Account {
    pub fn lost_ns(&self) -> f64 {
        self.threads.iter().map(|t| t.lost_ns).sum()
    }

    pub fn is_contended(&self) -> bool {
        self.threads.iter().any(|t| t.conflicting)
    }
}

/// What the arithmetic needs to know of the line.
pub(crate) struct Context<'a> {
    pub footprints: &'a Footprints,
    pub threads: usize,
    pub granule: usize,
    /// The longest absence after which a thread still returns, ns.
    pub absence_ns: u64,
    /// By thread: when it was last seen in a complete sequence, if ever.
    pub last_exact: &'a [Option<u64>],
    /// By thread; empty where that is not known.
    pub lives: &'a [Life<'a>],
}

/// When a thread was on the line so far.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life<'a> {
    pub thread: ThreadId,
    /// Its first and last touch.
    pub first: u64,
    pub last: u64,
    /// Threads that had ended when it came.
    pub came_after: &'a [ThreadId],
}

impl Context<'_> {
    /// Whether the touch writes.
    pub(super) fn writes(&self, entry: &Entry) -> bool {
        self.footprints.get(entry.footprint).kind.writes()
    }

    /// Whether one of two threads had its last touch before the other's first. Programs that
    /// create threads anew for each step have such threads: they use what those of the step
    /// before used. Threads that take turns on a CPU come back and overlap. With few visits it
    /// may be chance, which is excluded, unless one is known to have ended before.
    pub(super) fn never_together(&self, account: &Account, i: usize, j: usize) -> bool {
        let (Some(a), Some(b)) = (self.lives.get(i), self.lives.get(j)) else {
            return false;
        };
        if a.last >= b.first && b.last >= a.first {
            return false;
        }
        let visits = |i: usize| account.threads[i].visits;
        a.came_after.contains(&b.thread)
            || b.came_after.contains(&a.thread)
            || chance_apart(visits(i), visits(j)) < HIGHEST_CHANCE
    }
}

/// The highest probability at which two threads whose visits do not overlap still count as
/// belonging to different steps, rather than as visits that happen to be in that order.
const HIGHEST_CHANCE: f64 = 0.001;

/// The probability that, with `a` visits of one thread and `b` of another in random order, all
/// visits of one come before all visits of the other.
fn chance_apart(a: u32, b: u32) -> f64 {
    let (less, more) = (a.min(b), a.max(b));
    // It is 2 / C(a + b, a). A value below 1 in 10^9 need not be computed further.
    let mut chance = 2.0;
    for i in 1..=less {
        chance *= f64::from(i) / f64::from(more + i);
        if chance < 1e-9 {
            break;
        }
    }
    chance
}
