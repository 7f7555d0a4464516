//! Which share of the interleavings is false, how far that is known, and what the kind
//! of sharing is when it is not known well. Called for every contended line, and by the
//! caller who joins lines to objects. Must not hide a line for want of samples.

use crate::config::MIXED_FROM;
use crate::pairs::{Pairs, counted_variance, vanishing};
use crate::verdict::{Sharing, Verdict};

/// The false share (0 to 1) and its standard error, in two parts: of what was
/// counted (in bursts and exact streams), and of what only samples speak for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct FalseShare {
    pub share: f64,
    counted_error: f64,
    sampled_error: f64,
}

impl FalseShare {
    /// Nothing is false.
    pub const NONE: Self = Self::certain(0.0);
    /// All is.
    pub const ALL: Self = Self::certain(1.0);

    const fn certain(share: f64) -> Self {
        Self {
            share,
            counted_error: 0.0,
            sampled_error: 0.0,
        }
    }

    /// Of so many changes that were counted, so many would be left.
    pub fn counted(changes: f64, separate: f64) -> Self {
        let share = vanishing(changes, separate);
        Self {
            share,
            counted_error: counted_variance(share, changes).sqrt(),
            sampled_error: 0.0,
        }
    }

    /// Of so many changes that samples lead to expect, so many would be left; and
    /// what is known of the pairs.
    pub fn expected(pairs: &Pairs, changes: f64, separate: f64) -> Self {
        let corrected = pairs.correction(changes, separate);
        Self {
            share: vanishing(changes, separate + corrected.separate),
            counted_error: corrected.counted_variance.sqrt() / changes,
            sampled_error: corrected.sampled_variance.sqrt() / changes,
        }
    }

    /// The kind of sharing of what has common bytes.
    pub fn sharing(&self) -> Sharing {
        if self.in_doubt() < MIXED_FROM {
            Sharing::True
        } else {
            Sharing::Mixed
        }
    }

    /// The share to hold against the limit: two standard errors off, to the side that
    /// each kind of doubt is to be decided for. A count errs upwards: a trap
    /// stretches the time between two stores of one thread, so that another comes
    /// between them that would not have, and in a burst of 16 changes two such are
    /// 12%. So a count must exceed the limit clearly. Samples err to both sides, and
    /// a line called true sharing is not shown. So they must stay below it clearly.
    /// Where nothing at all was seen to be false there is no doubt.
    fn in_doubt(&self) -> f64 {
        self.share - 2.0 * self.counted_error + 2.0 * self.sampled_error
    }

    /// Whether more than the limit is false beyond doubt of either kind.
    fn is_clearly_mixed(&self) -> bool {
        self.share - 2.0 * self.error() >= MIXED_FROM
    }

    /// Whether it is beyond doubt on which side of the limit it lies. If not, more
    /// bursts may tell.
    pub fn is_clear(&self) -> bool {
        self.is_clearly_mixed() || self.share + 2.0 * self.error() < MIXED_FROM
    }

    fn error(&self) -> f64 {
        self.counted_error.hypot(self.sampled_error)
    }

    /// Of several lines together, each with its number of interleavings.
    fn joint(all: &[(Self, f64)]) -> Self {
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

/// The kind of an object with several lines; none if there are none. It is mixed if a
/// line is without a doubt, or if lines of true sharing stand beside lines of false.
/// Lines in doubt are decided together: what few samples leave open of a line that
/// matters little, the others may settle. Where bursts confirmed a line of the object,
/// samples alone put no other beyond doubt: they take the order of accesses to be
/// random, and bursts of the same code may have shown that it is not.
pub fn joint_sharing<'a>(lines: impl Iterator<Item = &'a Verdict> + Clone) -> Option<Sharing> {
    let some_confirmed = lines.clone().any(|line| line.confirmed);
    let mut kinds = None;
    let mut clear = false;
    let mut all = Vec::new();
    for line in lines {
        kinds = Some(kinds.map_or(line.sharing, |k: Sharing| k.and(line.sharing)));
        clear |= line.sharing == Sharing::False
            || line.falsely.is_clearly_mixed() && (line.confirmed || !some_confirmed);
        all.push((line.falsely, line.interleavings_per_second));
    }
    match kinds {
        Some(Sharing::Mixed) if !clear => Some(FalseShare::joint(&all).sharing()),
        other => other,
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
        // 7.2% of 25, with an error of the root of 0.072 * 0.928 / 25, 0.052: the
        // share may be 0.176.
        assert_eq!(sampled(25.0, 1.8).sharing(), Sharing::Mixed);
        // Of 2500, the error is 0.0052: it is at most 0.082.
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
        // A tenth of the interleavings is of a line in doubt: 0.072 and an error of
        // 0.052 become 0.0072 and 0.0052 where nothing of the rest is false.
        let doubt = sampled(25.0, 1.8);
        let little = FalseShare::joint(&[(doubt, 100.0), (FalseShare::NONE, 900.0)]);
        assert!((little.in_doubt() - 0.0176).abs() < 0.0005);
        assert_eq!(little.sharing(), Sharing::True);
        // Two lines alike know more than one: the error is 0.037, so it may be 0.145.
        let alike = FalseShare::joint(&[(doubt, 1.0), (doubt, 1.0)]);
        assert!((alike.in_doubt() - 0.145).abs() < 0.001);
    }

    #[test]
    fn ten_changes_of_true_sharing_leave_a_doubt_and_thirty_do_not() {
        // None of 10: 1 of 12, with an error of 0.080. None of 30: 1 of 32, with an
        // error of 0.031. A burst may have met a moment that is not like the others.
        assert!(!FalseShare::counted(10.0, 10.0).is_clear());
        assert!(FalseShare::counted(30.0, 30.0).is_clear());
        assert!(FalseShare::counted(10.0, 0.0).is_clear());
    }

    #[test]
    fn a_line_is_clearly_mixed_if_neither_kind_of_doubt_says_otherwise() {
        // A half of 25, with an error of 0.1.
        assert!(sampled(25.0, 12.5).is_clearly_mixed());
        assert!(!sampled(25.0, 1.8).is_clearly_mixed());
        // A quarter of 16, with an error of 0.106.
        assert!(!FalseShare::counted(16.0, 12.0).is_clearly_mixed());
    }
}
