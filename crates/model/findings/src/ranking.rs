//! The order of findings, and which of them a report shows. The judge measures. Nothing here
//! changes a measured figure, except that a figure that is not a finite number counts as zero.

use crate::schema::{Finding, Findings};
use crate::sharing::Sharing;
use std::cmp::Ordering;

/// The default significance threshold, in percent of the involved threads' time.
///
/// One percent: below that, what a fix gains disappears in the spread between two runs of the same
/// program. SHERIFF has a threshold
/// for the same reason (section 4, "potential to seriously degrade performance").
pub const DEFAULT_THRESHOLD_PERCENT: f64 = 1.0;

/// How a report treats a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// False sharing at or above the threshold: always shown.
    Significant,
    /// Sharing that costs less than the threshold.
    BelowThreshold,
    /// What costs is no false sharing, or hardly any: the threads touch the same bytes.
    TrueSharing,
    /// False sharing on other machines or layouts only.
    Latent,
}

/// Orders the findings and numbers them from 1, as a report shows them: what is significant, by the
/// cost of its false part; then what else is present, and then what is latent, by
/// [`Finding::cost_percent`]. The highest comes first; of equal ones the one with more
/// interleavings. Ties keep their order.
///
/// A figure that is not a finite number becomes 0: JSON can't hold it, and a ratio of nothing
/// to nothing has no meaning. The result's verdict follows from the findings, and is set here.
pub fn rank(findings: &mut Findings) {
    for finding in &mut findings.findings {
        finding.drop_unreal_figures();
    }
    let threshold = findings.run.threshold_percent;
    findings.findings.sort_by(|a, b| as_shown(a, b, threshold));
    for (index, finding) in findings.findings.iter_mut().enumerate() {
        finding.rank = u32::try_from(index + 1).unwrap_or(u32::MAX);
    }
    findings.verdict = Some(findings.answer(findings.run.threshold_percent));
}

fn as_shown(a: &Finding, b: &Finding, threshold: f64) -> Ordering {
    let falsely = |f: &Finding| match f.standing(threshold) {
        Standing::Significant => f.false_cost_percent(),
        _ => 0.0,
    };
    a.latent
        .cmp(&b.latent)
        .then(falsely(b).total_cmp(&falsely(a)))
        .then(b.cost_percent.total_cmp(&a.cost_percent))
        .then(
            b.interleavings_per_second
                .total_cmp(&a.interleavings_per_second),
        )
}

impl Findings {
    /// The findings that a report shows by default.
    pub fn significant(&self, threshold_percent: f64) -> impl Iterator<Item = &Finding> {
        self.findings
            .iter()
            .filter(move |f| f.standing(threshold_percent) == Standing::Significant)
    }
}

impl Finding {
    /// The number of its contended lines, also of those that are not listed.
    pub const fn all_lines(&self) -> usize {
        self.lines.len() + self.further_lines as usize
    }

    /// How a report treats the finding.
    pub fn standing(&self, threshold_percent: f64) -> Standing {
        if self.latent {
            Standing::Latent
        } else if self.sharing != Sharing::True && self.false_cost_percent() >= threshold_percent {
            Standing::Significant
        } else if self.sharing != Sharing::False && self.cost_percent >= threshold_percent {
            Standing::TrueSharing
        } else {
            Standing::BelowThreshold
        }
    }

    /// The part of [`Finding::cost_percent`] that separating the threads' data could save: all
    /// of it for false sharing, the share of the false interleavings for mixed sharing, nothing
    /// for true sharing.
    pub fn false_cost_percent(&self) -> f64 {
        match self.sharing {
            Sharing::False => self.cost_percent,
            Sharing::Mixed => self.cost_percent * self.false_share.clamp(0.0, 1.0),
            Sharing::True => 0.0,
        }
    }

    fn drop_unreal_figures(&mut self) {
        let figures = [
            &mut self.cost_percent,
            &mut self.interleavings_per_second,
            &mut self.false_share,
        ];
        let of_lines = self
            .lines
            .iter_mut()
            .map(|l| &mut l.interleavings_per_second);
        for figure in figures
            .into_iter()
            .chain(of_lines)
            .chain(&mut self.timeline)
        {
            if !figure.is_finite() {
                *figure = 0.0;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(name: &str, cost: f64, rate: f64, latent: bool) -> Finding {
        let mut f = Finding {
            cost_percent: cost,
            interleavings_per_second: rate,
            latent,
            ..Finding::default()
        };
        f.object.name = Some(name.into());
        f
    }

    #[test]
    fn findings_are_ranked_by_cost_with_latent_ones_last() {
        let mut all = Findings {
            findings: vec![
                finding("latent", 90.0, 9.0, true),
                finding("tie, first", 5.0, 10.0, false),
                finding("tie, second", 5.0, 10.0, false),
                finding("same cost, faster", 5.0, 11.0, false),
                finding("no number", f64::NAN, f64::INFINITY, false),
                finding("dearest", 70.0, 1.0, false),
            ],
            ..Findings::default()
        };
        rank(&mut all);
        let names: Vec<_> = all
            .findings
            .iter()
            .map(|f| (f.rank, f.object.name.as_deref().unwrap_or_default()))
            .collect();
        assert_eq!(
            names,
            [
                (1, "dearest"),
                (2, "same cost, faster"),
                (3, "tie, first"),
                (4, "tie, second"),
                (5, "no number"),
                (6, "latent"),
            ]
        );
        assert_eq!(all.findings[4].cost_percent, 0.0);
    }

    /// What can be mended by another layout is what a report begins with.
    #[test]
    fn what_is_falsely_shared_comes_before_what_is_shared_truly() {
        let kind = |name, cost, sharing, false_share| Finding {
            sharing,
            false_share,
            ..finding(name, cost, 1.0, false)
        };
        let mut all = Findings {
            findings: vec![
                kind("true", 98.0, Sharing::True, 0.0),
                kind("hardly false", 90.0, Sharing::Mixed, 0.001),
                kind("a little false", 80.0, Sharing::Mixed, 0.05),
                kind("false", 30.0, Sharing::False, 1.0),
                kind("below", 0.5, Sharing::False, 1.0),
            ],
            ..Findings::default()
        };
        all.run.threshold_percent = 1.0;
        rank(&mut all);
        let names = all.findings.iter().filter_map(|f| f.object.name.as_deref());
        let expected = ["false", "a little false", "true", "hardly false", "below"];
        assert_eq!(names.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn only_the_false_part_of_mixed_sharing_counts_as_significant() {
        let mut f = finding("m", 10.0, 1.0, false);
        f.sharing = Sharing::Mixed;
        f.false_share = 0.05;
        assert_eq!(f.standing(1.0), Standing::TrueSharing);
        assert_eq!(f.standing(11.0), Standing::BelowThreshold);
        f.false_share = 0.5;
        assert_eq!(f.standing(1.0), Standing::Significant);
        f.sharing = Sharing::True;
        assert_eq!(f.standing(1.0), Standing::TrueSharing);
        assert_eq!(f.standing(11.0), Standing::BelowThreshold);
        f.latent = true;
        assert_eq!(f.standing(1.0), Standing::Latent);
    }

    #[test]
    fn the_threshold_itself_is_significant() {
        assert_eq!(
            finding("x", 1.0, 1.0, false).standing(1.0),
            Standing::Significant
        );
        assert_eq!(
            finding("x", 0.99, 1.0, false).standing(1.0),
            Standing::BelowThreshold
        );
    }
}
