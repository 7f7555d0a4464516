//! How much faster one variant is than another, from runs in alternating pairs: the mean of the
//! logarithms of the ratios, with Student's interval. Pure.

/// The two-sided 99 % quantiles of Student's distribution for 1, 2, … degrees of freedom. 99 and
/// not 95 %, because the interval is looked at after each pair.
const STUDENT: [f64; 30] = [
    63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355, 3.250, 3.169, 3.106, 3.055, 3.012,
    2.977, 2.947, 2.921, 2.898, 2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797, 2.787, 2.779,
    2.771, 2.763, 2.756, 2.750,
];
/// With fewer pairs, the spread is not known.
const FEWEST: usize = 5;
/// An interval narrower than this share of its middle says enough, on either side.
const NARROW: f64 = 0.05;
/// Variants that differ by less than this are the same.
const SAME: f64 = 0.01;

/// How many times as fast the second variant is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Gain {
    /// The geometric mean of the ratios.
    pub times: f64,
    /// The 99 % interval.
    pub least: f64,
    /// Its upper end.
    pub most: f64,
    /// The number of pairs.
    pub pairs: usize,
}

impl Gain {
    /// From pairs of times: of the original, and of the changed variant. `None` if there are too few.
    pub fn of(pairs: &[[f64; 2]]) -> Option<Self> {
        let logs: Vec<f64> = pairs.iter().map(|[old, new]| (old / new).ln()).collect();
        let n = logs.len();
        if n < 2 || logs.iter().any(|l| !l.is_finite()) {
            return None;
        }
        let count = n as f64;
        let mean = logs.iter().sum::<f64>() / count;
        let variance = logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (count - 1.0);
        // Beyond the table the quantile falls from 2.75 to 2.58.
        let quantile = STUDENT.get(n - 2).copied().unwrap_or(2.75);
        let half = quantile * (variance / count).sqrt();
        Some(Self {
            times: mean.exp(),
            least: (mean - half).exp(),
            most: (mean + half).exp(),
            pairs: n,
        })
    }

    /// Whether the variants certainly differ.
    pub fn is_certain(&self) -> bool {
        self.pairs >= FEWEST && (self.least > 1.0 || self.most < 1.0)
    }

    /// Whether more pairs would say nothing new: a difference that is certain and known to a few
    /// percent, or none.
    pub(super) fn is_enough(&self) -> bool {
        let width = (self.most / self.least).ln() / 2.0;
        let same = self.most < 1.0 + SAME && self.least > 1.0 - SAME;
        self.pairs >= FEWEST && (same || self.is_certain() && width < NARROW)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ratios_have_no_spread() {
        let gain = Gain::of(&[[4.0, 2.0]; 5]).expect("enough");
        assert!((gain.times - 2.0).abs() < 1e-9 && (gain.least - 2.0).abs() < 1e-9);
        assert!(gain.is_certain() && gain.is_enough());
    }

    /// By hand: logs 0.1, 0.2, 0.3 have mean 0.2 and deviation 0.1; 9.925 * 0.1 / sqrt(3) = 0.573.
    #[test]
    fn the_interval_is_students() {
        let pairs = [0.1_f64, 0.2, 0.3].map(|l| [l.exp(), 1.0]);
        let gain = Gain::of(&pairs).expect("enough");
        assert!((gain.least.ln() - (0.2 - 0.573)).abs() < 1e-3);
        assert!((gain.most.ln() - (0.2 + 0.573)).abs() < 1e-3);
        assert!(!gain.is_certain());
    }

    #[test]
    fn noise_is_no_gain_and_few_pairs_are_no_proof() {
        let noise = [[1.0, 1.3], [1.3, 1.0], [1.1, 1.2], [1.2, 1.1], [1.0, 1.0]];
        let gain = Gain::of(&noise).expect("enough");
        assert!(!gain.is_certain() && !gain.is_enough());
        assert!(Gain::of(&[[1.0, 1.0]]).is_none());
        assert!(!Gain::of(&[[4.0, 2.0]; 3]).expect("two").is_certain());
    }
}
