//! Which share of a line's interleavings is false, how certain that share is, and what kind of
//! sharing follows from it in cases of doubt. Called for every contended line, and for objects
//! with several lines (`joint`). It must not hide a line because it has few samples.

use crate::config::MIXED_FROM;
use crate::pairs::{Pairs, counted_variance, vanishing};

/// The kind of sharing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Sharing {
    /// No byte has two simultaneous accessors of which one writes.
    False,
    /// Some bytes have, and moving the other bytes away would help little.
    True,
    /// Some bytes have, and moving the other bytes away would help too.
    Mixed,
}

impl Sharing {
    /// The kind of sharing of a line or object that has both kinds.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        if self == other { self } else { Self::Mixed }
    }
}

/// The share of false interleavings (0 to 1) with its standard error in two parts: of what was
/// counted in bursts and exact streams, and of what only samples tell.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FalseShare {
    pub share: f64,
    counted_error: f64,
    sampled_error: f64,
}

impl FalseShare {
    /// No interleaving is false.
    pub const NONE: Self = Self::certain(0.0);
    /// Every interleaving is false.
    pub const ALL: Self = Self::certain(1.0);

    const fn certain(share: f64) -> Self {
        Self {
            share,
            counted_error: 0.0,
            sampled_error: 0.0,
        }
    }

    /// The share and its two errors.
    pub const fn parts(&self) -> (f64, f64, f64) {
        (self.share, self.counted_error, self.sampled_error)
    }

    /// The share with these [`FalseShare::parts`].
    pub const fn of_parts((share, counted_error, sampled_error): (f64, f64, f64)) -> Self {
        Self {
            share,
            counted_error,
            sampled_error,
        }
    }

    /// `changes` were counted, of which `separate` would remain if each variable had a line.
    pub fn counted(changes: f64, separate: f64) -> Self {
        let share = vanishing(changes, separate);
        Self {
            share,
            counted_error: counted_variance(share, changes).sqrt(),
            sampled_error: 0.0,
        }
    }

    /// Samples lead to expect `changes`, of which `separate` would remain if each variable had
    /// a line. `pairs` corrects this by what bursts counted.
    pub fn expected(pairs: &Pairs, changes: f64, separate: f64) -> Self {
        let corrected = pairs.correction(changes, separate);
        Self {
            share: vanishing(changes, separate + corrected.separate),
            counted_error: corrected.counted_variance.sqrt() / changes,
            sampled_error: corrected.sampled_variance.sqrt() / changes,
        }
    }

    /// The kind of sharing of a line with bytes that several threads share.
    pub fn sharing(&self) -> Sharing {
        if self.in_doubt() < MIXED_FROM {
            Sharing::True
        } else {
            Sharing::Mixed
        }
    }

    /// The share to compare with the limit. It is shifted by two standard errors, in a
    /// direction that depends on the evidence.
    ///
    /// A count errs upwards: a trap stretches the time between two stores of one thread, so
    /// that another thread's store comes between them that otherwise would not; in a burst of
    /// 16 changes two such are 12%. So a counted share must exceed the limit clearly.
    ///
    /// Samples err in both directions, and reports do not show a line of true sharing. So a
    /// sampled share must be clearly below the limit. Where no interleaving was seen to be
    /// false, there is no doubt.
    fn in_doubt(&self) -> f64 {
        self.share - 2.0 * self.counted_error + 2.0 * self.sampled_error
    }

    /// Whether the share exceeds the limit by two standard errors.
    pub fn is_clearly_mixed(&self) -> bool {
        self.share - 2.0 * self.error() >= MIXED_FROM
    }

    /// Whether the share is two standard errors above or below the limit. If not, more bursts
    /// may decide it.
    pub fn is_clear(&self) -> bool {
        self.is_clearly_mixed() || self.share + 2.0 * self.error() < MIXED_FROM
    }

    fn error(&self) -> f64 {
        self.counted_error.hypot(self.sampled_error)
    }

    /// The share of several lines together, each weighted by its number of interleavings.
    pub fn joint(all: &[(Self, f64)]) -> Self {
        let whole: f64 = all.iter().map(|(_, weight)| weight).sum();
        let mut joint = Self::NONE;
        for (one, weight) in all {
            let part = if whole > 0.0 {
                weight / whole
            } else {
                1.0 / all.len() as f64
            };
            joint.share += part * one.share;
            joint.counted_error = joint.counted_error.hypot(part * one.counted_error);
            joint.sampled_error = joint.sampled_error.hypot(part * one.sampled_error);
        }
        joint
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::ThreadId;

    fn sampled(changes: f64, falsely: f64) -> FalseShare {
        let separate = changes - falsely;
        let mut pairs = Pairs::default();
        pairs.add_sampled((ThreadId(1), ThreadId(2)), changes, separate);
        FalseShare::expected(&pairs, changes, separate)
    }

    #[test]
    fn samples_that_leave_a_doubt_do_not_hide_a_line() {
        // 7.2% of 25 changes, with a standard error of the root of 0.072 * 0.928 / 25, 0.052:
        // the share may be 0.176.
        assert_eq!(sampled(25.0, 1.8).sharing(), Sharing::Mixed);
        // With 2500 changes the error is 0.0052, so the share is at most 0.082.
        assert_eq!(sampled(2500.0, 180.0).sharing(), Sharing::True);
    }

    #[test]
    fn samples_of_one_variable_only_leave_no_doubt() {
        assert_eq!(sampled(4.0, 0.0).sharing(), Sharing::True);
    }

    #[test]
    fn a_burst_with_two_changes_too_many_is_of_true_sharing() {
        // 2 of 16 are 0.125, with an error of 0.088.
        assert_eq!(FalseShare::counted(16.0, 14.0).sharing(), Sharing::True);
        // 8 of 16 are a half, with an error of 0.118.
        assert_eq!(FalseShare::counted(16.0, 8.0).sharing(), Sharing::Mixed);
    }

    #[test]
    fn a_line_in_doubt_that_matters_little_does_not_decide() {
        // A line with a tenth of the interleavings is in doubt. If nothing of the rest is
        // false, its share of 0.072 with an error of 0.052 becomes 0.0072 with an error of
        // 0.0052.
        let doubt = sampled(25.0, 1.8);
        let little = FalseShare::joint(&[(doubt, 100.0), (FalseShare::NONE, 900.0)]);
        assert!((little.in_doubt() - 0.0176).abs() < 0.0005);
        assert_eq!(little.sharing(), Sharing::True);
        // Two equal lines are more certain than one: the error is 0.037, so the share may be
        // 0.145.
        let alike = FalseShare::joint(&[(doubt, 1.0), (doubt, 1.0)]);
        assert!((alike.in_doubt() - 0.145).abs() < 0.001);
    }

    #[test]
    fn ten_changes_of_true_sharing_leave_a_doubt_and_thirty_do_not() {
        // 0 of 10 counts as 1 of 12, with an error of 0.080; 0 of 30 as 1 of 32, with an error
        // of 0.031. A burst may have caught an untypical moment.
        assert!(!FalseShare::counted(10.0, 10.0).is_clear());
        assert!(FalseShare::counted(30.0, 30.0).is_clear());
        assert!(FalseShare::counted(10.0, 0.0).is_clear());
    }

    #[test]
    fn a_line_is_clearly_mixed_if_neither_kind_of_doubt_says_otherwise() {
        // A half of 25 changes, with an error of 0.1.
        assert!(sampled(25.0, 12.5).is_clearly_mixed());
        assert!(!sampled(25.0, 1.8).is_clearly_mixed());
        // A quarter of 16 changes, with an error of 0.106.
        assert!(!FalseShare::counted(16.0, 12.0).is_clearly_mixed());
    }
}
