//! One stay of moved bytes at their new place, and whether what it gained is worth it. Called by
//! `attempt`. Pure.

use sunder_access::ThreadId;
use sunder_gain::gained::{least, mean};
use sunder_plan::progress::{Gain, WORTH_KEEPING};
use sunder_wire::remap::BY_TOOL;

/// One stay of the bytes at their new place.
#[derive(Clone, Debug, Default)]
pub struct Stay {
    /// When they were moved, in ns of the monotonic clock.
    pub applied: u64,
    /// How long the move took, in ns.
    pub took: u64,
    /// Faults on the area in earlier stays.
    pub(super) faults_before: u64,
    /// Faults on the area in this stay.
    pub faults: u64,
    /// How many there had been at which moment, in ns of the monotonic clock; see [`Self::count`].
    pub faults_over_time: Vec<(u64, u64)>,
    /// Gain of each thread; empty if none was measured.
    pub gains: Vec<(ThreadId, Gain)>,
    /// It ends because another layout, or another remedy, is expected to do better.
    pub rethought: Option<Rethought>,
    /// The user asked for the bytes to go back.
    pub undone: bool,
    /// Why the bytes were put back (a number of `sunder_wire::remap`), and when.
    pub back: Option<(u32, u64)>,
}

/// Why bytes that gained something go back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rethought {
    /// Threads contend for bytes that have stayed together.
    LeftTogether,
    /// Bytes of the pages beside are to move, too, and the same threads use both. A copy of code knows
    /// the bytes of one move, so they would leave it at each change from one to the other.
    Joined,
    /// Little was gained, and another remedy that the caller has may gain more.
    AnotherRemedy,
    /// The same loops use bytes of another move as well, and a copy of code knows the bytes of one.
    Crossed,
}

impl Rethought {
    /// Whether another layout of the same bytes is looked for. Nobody else is to take them meanwhile.
    pub fn seeks_layout(self) -> bool {
        !matches!(self, Self::AnotherRemedy | Self::Crossed)
    }

    /// As a clause after "because".
    pub const fn why(self) -> &'static str {
        match self {
            Self::LeftTogether => "threads came to contend for bytes that had stayed together",
            Self::Joined => "bytes beside them that the same threads use were to move with them",
            Self::AnotherRemedy => "that was less than their contention cost",
            Self::Crossed => {
                "the same loops use bytes of another move, and a copy of code finds only those of one"
            }
        }
    }
}

/// Most moments at which faults are remembered.
const MOST_MOMENTS: usize = 128;

impl Stay {
    /// At the moment `now`, `faults` faults on the area have been counted in all stays together. The
    /// last remembered moment is that at which the last one was seen.
    pub(super) fn count(&mut self, now: u64, faults: u64) {
        let faults = faults.saturating_sub(self.faults_before);
        if faults == self.faults {
            return;
        }
        self.faults = faults;
        if self.faults_over_time.len() == MOST_MOMENTS {
            self.faults_over_time.pop();
        }
        self.faults_over_time.push((now, faults));
    }

    /// How many times as fast the threads got on; the mean of all.
    pub fn gain(&self) -> Option<f64> {
        mean(&self.gains)
    }

    /// Whether it has ended because one thread lost where the others gained.
    pub fn is_mixed(&self) -> bool {
        let by_tool = self.back.is_some_and(|(why, _)| why == BY_TOOL);
        by_tool
            && self.rethought.is_none()
            && !self.undone
            && self.gain().is_some_and(|gain| gain >= WORTH_KEEPING)
    }

    /// The same of the thread that got on worst.
    pub fn least_gain(&self) -> Option<f64> {
        least(&self.gains)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_with_new_faults_are_remembered_and_the_last_is_always_there() {
        let mut stay = Stay {
            faults_before: 10,
            ..Stay::default()
        };
        for (now, faults) in [(1, 10), (2, 12), (3, 12), (4, 15)] {
            stay.count(now, faults);
        }
        assert_eq!(stay.faults, 5);
        assert_eq!(stay.faults_over_time, [(2, 2), (4, 5)]);
        for more in 0..1000 {
            stay.count(10 + more, 16 + more);
        }
        assert_eq!(stay.faults_over_time.len(), MOST_MOMENTS);
        assert_eq!(stay.faults_over_time.last(), Some(&(1009, 1005)));
    }
}
