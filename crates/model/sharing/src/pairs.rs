//! Changes of a line between two given threads. What a burst shows holds for the threads that
//! it saw at work together, and for no others. So which changes are false is kept for each pair
//! of threads. Called by the line's record for every finished stretch and burst.

use crate::config::CONFIRMING_CHANGES;
use sunder_access::ThreadId;

/// The most pairs that are kept apart on a line; of changes between other pairs only the sum is
/// known.
const MOST_PAIRS: usize = 64;

/// What is known about two threads.
#[derive(Clone, Copy, Debug)]
struct Pair {
    threads: (ThreadId, ThreadId),
    /// Changes that the samples lead to expect, and how many would remain with each variable on
    /// a line of its own.
    sampled: (f64, f64),
    /// The same two numbers, as counted in bursts.
    seen: (u64, u64),
}

/// All pairs of a line.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pairs(Vec<Pair>);

/// One pair's part of an account: the indices of its threads, the lower first, the number of
/// changes, and how many would remain with each variable on a line of its own.
pub(crate) type PairChanges<T> = ((u16, u16), T, T);

impl Pairs {
    /// Adds the changes that the samples of a stretch lead to expect.
    pub fn add_sampled(&mut self, threads: (ThreadId, ThreadId), changes: f64, separate: f64) {
        if let Some(pair) = self.pair(threads) {
            pair.sampled.0 += changes;
            pair.sampled.1 += separate;
        }
    }

    /// Adds the changes that a burst showed.
    pub fn add_seen(&mut self, threads: (ThreadId, ThreadId), changes: u64, separate: u64) {
        if let Some(pair) = self.pair(threads) {
            pair.seen.0 += changes;
            pair.seen.1 += separate;
        }
    }

    fn pair(&mut self, (a, b): (ThreadId, ThreadId)) -> Option<&mut Pair> {
        let threads = (a.min(b), a.max(b));
        let known = self.0.iter().position(|p| p.threads == threads);
        let place = match known {
            Some(place) => place,
            None if self.0.len() < MOST_PAIRS => {
                self.0.push(Pair {
                    threads,
                    sampled: (0.0, 0.0),
                    seen: (0, 0),
                });
                self.0.len() - 1
            }
            None => return None,
        };
        Some(&mut self.0[place])
    }

    /// How the bursts correct the samples' estimate. For a pair that bursts saw, the share that
    /// they counted replaces the one that follows from random order, weighted by how much they
    /// saw. `changes` is what the samples expect for the whole line, and `separate` how many of
    /// these would remain. Changes of pairs that are not kept apart are one group.
    pub fn correction(&self, changes: f64, separate: f64) -> Correction {
        let mut sum = Correction::default();
        let mut others = (changes, separate);
        for pair in &self.0 {
            let (changes, separate) = pair.left();
            others.0 -= pair.sampled.0;
            others.1 -= pair.sampled.1;
            sum.separate += separate - pair.sampled.1;
            let share = vanishing(changes, separate);
            if pair.confirmed() {
                let variance = counted_variance(share, pair.seen.0 as f64);
                sum.counted_variance += changes.powi(2) * variance;
            } else {
                let variance = binomial_variance(share, pair.observations());
                sum.sampled_variance += changes.powi(2) * variance;
            }
        }
        let others = (others.0.max(0.0), others.1.max(0.0));
        let share = vanishing(others.0, others.1);
        sum.sampled_variance += others.0.powi(2) * binomial_variance(share, others.0);
        sum
    }
}

/// See [`Pairs::correction`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Correction {
    /// To be added to the number of changes that would remain.
    pub separate: f64,
    /// The variance of that number that comes from pairs that bursts confirmed.
    pub counted_variance: f64,
    /// The variance of that number that comes from pairs that only samples tell about.
    pub sampled_variance: f64,
}

impl Pair {
    /// Whether bursts have seen enough of this pair to overrule its samples.
    const fn confirmed(&self) -> bool {
        self.seen.0 >= CONFIRMING_CHANGES
    }

    fn weight(&self) -> f64 {
        (self.seen.0 as f64 / CONFIRMING_CHANGES as f64).min(1.0)
    }

    /// The changes that the samples expect, and how many of them would remain.
    fn left(&self) -> (f64, f64) {
        let (changes, separate) = self.sampled;
        if self.seen.0 == 0 {
            return (changes, separate);
        }
        let seen = changes * (self.seen.1 as f64 / self.seen.0 as f64).min(1.0);
        (changes, separate + self.weight() * (seen - separate))
    }

    /// The number of changes that the pair's share is based on.
    fn observations(&self) -> f64 {
        let weight = self.weight();
        weight * self.seen.0 as f64 + (1.0 - weight) * self.sampled.0
    }
}

/// The share of `changes` that goes away if `separate` remain.
pub(crate) fn vanishing(changes: f64, separate: f64) -> f64 {
    if changes <= 0.0 {
        return 0.0;
    }
    (1.0 - separate / changes).clamp(0.0, 1.0)
}

/// The variance of a share found among `observations` changes.
fn binomial_variance(share: f64, observations: f64) -> f64 {
    share * (1.0 - share) / observations.max(1.0)
}

/// The variance of a share found by counting. It includes one more change of each kind
/// (Laplace's rule of succession), so that it is not 0 where none or all of a few changes were
/// false.
pub(crate) fn counted_variance(share: f64, changes: f64) -> f64 {
    binomial_variance((share * changes + 1.0) / (changes + 2.0), changes + 2.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ThreadId = ThreadId(1);
    const B: ThreadId = ThreadId(2);
    const C: ThreadId = ThreadId(3);

    #[test]
    fn a_burst_speaks_for_the_pair_that_it_saw_and_for_no_other() {
        let mut pairs = Pairs::default();
        // Samples: half of the changes between A and B are false, all between A and C.
        pairs.add_sampled((B, A), 100.0, 50.0);
        pairs.add_sampled((A, C), 100.0, 0.0);
        // The burst saw A and B, and none of their changes is false.
        pairs.add_seen((A, B), 20, 20);
        let correction = pairs.correction(200.0, 50.0);
        assert_eq!(correction.separate, 50.0);
        assert_eq!(correction.sampled_variance, 0.0);
        // None of 20 is false, so it counts as 1 of 22: the root of 1/22 * 21/22 / 22 is 0.044.
        let error = correction.counted_variance.sqrt() / 100.0;
        assert!((error - 0.044).abs() < 0.001, "{error}");
    }

    #[test]
    fn a_burst_that_saw_little_weighs_little() {
        let mut pairs = Pairs::default();
        pairs.add_sampled((A, B), 100.0, 50.0);
        pairs.add_seen((A, B), CONFIRMING_CHANGES / 2, 0);
        assert_eq!(pairs.correction(100.0, 50.0).separate, -25.0);
    }

    #[test]
    fn a_share_seen_in_few_changes_is_uncertain() {
        let mut pairs = Pairs::default();
        pairs.add_sampled((A, B), 100.0, 50.0);
        pairs.add_seen((A, B), 16, 14);
        // 2 of 16 are false, with one more of each kind 3 of 18: the root of 1/6 * 5/6 / 18 is
        // 0.088.
        let correction = pairs.correction(100.0, 50.0);
        let error = correction.counted_variance.sqrt() / 100.0;
        assert!((error - 0.088).abs() < 0.001, "{error}");
        assert_eq!(correction.sampled_variance, 0.0);
    }

    #[test]
    fn doubt_about_a_pair_that_bursts_did_not_confirm_is_the_samples_doubt() {
        let mut pairs = Pairs::default();
        // Half of 25 changes, so the variance of their number is 25 / 4.
        pairs.add_sampled((A, B), 25.0, 12.5);
        let correction = pairs.correction(25.0, 12.5);
        assert_eq!(correction.sampled_variance, 6.25);
        assert_eq!(correction.counted_variance, 0.0);
    }

    #[test]
    fn changes_of_no_recorded_pair_are_uncertain_too() {
        // Half of 25 changes, in no pair that is kept apart.
        let correction = Pairs::default().correction(25.0, 12.5);
        assert_eq!(correction.sampled_variance, 6.25);
    }
}
