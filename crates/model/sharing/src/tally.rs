//! Sums that a line keeps over its finished stretches and over its watch bursts, and how often
//! each footprint was used. [`crate::line`] and [`crate::burst`] add to them, the verdict reads
//! them. Nothing is decided here.

use crate::bytes::ByteState;
use crate::stretch::Account;
use sunder_access::ByteMask;

/// How often a thread used a footprint.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FootprintUse {
    pub footprint: u16,
    /// All uses, and those of them while the line was contended.
    pub count: u32,
    pub shared: u32,
}

/// Sums over finished stretches.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    pub isolated: u64,
    /// The isolated visits that count as evidence.
    pub returns: u64,
    pub isolated_expected: f64,
    pub lost_ns: f64,
    pub changes: f64,
    pub separate: f64,
    pub counted_changes: f64,
    pub exact_changes: u64,
    pub exact_separate: u64,
    pub bytes: Vec<ByteState>,
    /// For a stream of diffs: the number of intervals in which a thread changed the line,
    /// summed over the threads. 0 for other streams.
    pub stays: u64,
}

/// Sums over watch bursts.
#[derive(Clone, Debug, Default)]
pub(crate) struct BurstTally {
    /// Bursts with and without a change of thread.
    pub loud: u32,
    pub quiet: u32,
    pub changes: u64,
    pub separate: u64,
    /// The sum of the bursts' weights (at most 1 each), and the sum of weight times the share
    /// of its expected changes that a burst showed.
    pub weight: f64,
    pub weighted_share: f64,
    pub bytes: Vec<ByteState>,
    pub watched: ByteMask,
}

impl Tally {
    pub fn add(&mut self, account: &Account) {
        self.isolated += u64::from(account.isolated);
        self.isolated_expected += account.isolated_expected;
        self.lost_ns += account.lost_ns();
        self.changes += account.changes;
        self.separate += account.separate;
        self.counted_changes += account.counted_changes;
        self.exact_changes += account.exact_changes;
        self.exact_separate += account.exact_separate;
        if !account.bytes.is_empty() {
            join(&mut self.bytes, &account.bytes);
        }
    }

    /// The share of interleaved time in the time that threads spent on the line while others
    /// did too, judged by the order of visits: 1 for a random order, towards 0 for long phases.
    pub fn interleaved_share(&self) -> f64 {
        if self.isolated_expected <= 0.0 {
            return 0.0;
        }
        (self.isolated as f64 / self.isolated_expected).min(1.0)
    }
}

pub(crate) fn add_use(uses: &mut Vec<FootprintUse>, footprint: u16, count: u32, shared: u32) {
    match uses.iter_mut().find(|u| u.footprint == footprint) {
        Some(found) => {
            found.count = found.count.saturating_add(count);
            found.shared = found.shared.saturating_add(shared);
        }
        None => uses.push(FootprintUse {
            footprint,
            count,
            shared,
        }),
    }
}

pub(crate) fn join(into: &mut Vec<ByteState>, new: &[ByteState]) {
    if into.is_empty() {
        into.extend_from_slice(new);
        return;
    }
    for (old, new) in into.iter_mut().zip(new) {
        *old = (*old).max(*new);
    }
}
