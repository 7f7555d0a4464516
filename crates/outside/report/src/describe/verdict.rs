//! What a finding is and costs, and the answer of a whole run.

use crate::clean::clean;
use crate::figures::{counted, percent};
use sunder_findings::{Finding, Findings, LatentOn, Sharing, Standing};

/// The number of findings of each standing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) significant: usize,
    /// Truly shared, and costly.
    pub(crate) truly: usize,
    /// Falsely shared at least in part, below the threshold.
    pub(crate) below: usize,
    /// Truly shared alone, below the threshold.
    pub(crate) truly_below: usize,
    pub(crate) latent: usize,
}

impl Counts {
    pub(crate) fn of(all: &Findings, threshold: f64) -> Self {
        let mut counts = Self::default();
        for finding in &all.findings {
            *match finding.standing(threshold) {
                Standing::Significant => &mut counts.significant,
                Standing::BelowThreshold if finding.sharing == Sharing::True => {
                    &mut counts.truly_below
                }
                Standing::BelowThreshold => &mut counts.below,
                Standing::TrueSharing => &mut counts.truly,
                Standing::Latent => &mut counts.latent,
            } += 1;
        }
        counts
    }
}

/// The result in one sentence.
pub(crate) fn answer(all: &Findings, threshold: f64) -> String {
    let mut significant = all.significant(threshold);
    let Some(first) = significant.next() else {
        let reasons = all.answer(threshold).reasons;
        if !reasons.is_empty() {
            let reasons: Vec<String> = reasons.iter().map(ToString::to_string).collect();
            return format!(
                "Not known whether there is false sharing: {}.",
                reasons.join("; ")
            );
        }
        let none = format!(
            "No false sharing found that costs {} or more",
            percent(threshold)
        );
        let truly = |f: &&Finding| f.standing(threshold) == Standing::TrueSharing;
        return match all.findings.iter().find(truly) {
            None => format!("{none}."),
            Some(first) => format!(
                "{none}. But threads share {} truly{}: it costs {}{}.",
                clean(&first.subject()),
                match first.sampled_false_share {
                    Some(_) => ", or falsely, which is not certain",
                    None => "",
                },
                of_threads(first.cost_percent, first),
                as_sampled(all)
            ),
        };
    };
    let many = significant.count() + 1;
    let name = clean(&first.subject());
    if let Some(gain) = gain(first) {
        let fix = format!("taking it apart saves about {gain} of the program's time");
        return if many == 1 {
            format!("False sharing in {name}: {fix}, as measured.")
        } else {
            format!("{many} objects are falsely shared; the first is {name}: {fix}, as measured.")
        };
    }
    let cost = of_threads(first.false_cost_percent(), first) + as_sampled(all);
    if many == 1 {
        format!("False sharing in {name}: it costs {cost}.")
    } else {
        format!("{many} objects are falsely shared; the first, {name}, costs {cost}.")
    }
}

/// `12 % of the time of 2 threads`, those of the finding.
fn of_threads(cost: f64, finding: &Finding) -> String {
    let threads = counted(threads_of(finding), "thread");
    format!("{} of the time of {threads}", percent(cost))
}

/// Samples do not show all: the wait for a line may show elsewhere.
fn as_sampled(all: &Findings) -> &'static str {
    match all.run.observer.as_str() {
        "trace" => "",
        _ => ", as far as samples show",
    }
}

/// The kind of the finding: `false sharing`, `latent false sharing` and so on.
pub(crate) fn kind(finding: &Finding) -> &'static str {
    match (finding.latent, finding.sharing) {
        (true, _) => "latent false sharing",
        (false, Sharing::False) => "false sharing",
        (false, Sharing::True) => "true sharing",
        (false, Sharing::Mixed) => "mixed sharing",
    }
}

/// What a fix gains, if that was measured. Else the cost of the finding, or the condition of a latent
/// one; for mixed sharing also the cost of the false part.
pub(crate) fn cost(finding: &Finding) -> String {
    if let Some(gain) = gain(finding) {
        return format!("a fix saves {gain}");
    }
    let whole = whole_cost(finding);
    match false_part(finding) {
        Some(part) => format!("costs {whole}, {part}"),
        None if finding.latent => whole,
        None => format!("costs {whole}"),
    }
}

/// The cost of the whole finding, or the condition of a latent one.
pub(crate) fn whole_cost(finding: &Finding) -> String {
    if !finding.latent {
        return percent(finding.cost_percent);
    }
    match finding.latent_on {
        Some(LatentOn::LineSize(bytes)) => format!("with {bytes}-byte lines"),
        Some(LatentOn::StartOffset(byte)) => format!("if it starts at byte {byte} of a line"),
        Some(LatentOn::MoreCpusThan(1)) => "with more than one CPU".to_owned(),
        Some(LatentOn::MoreCpusThan(cpus)) => format!("with more than {cpus} CPUs"),
        None => "not on this machine".to_owned(),
    }
}

/// What a fix gains: `67 % (60 to 74 %)`.
pub(crate) fn gain(finding: &Finding) -> Option<String> {
    let gain = finding.gain_percent?;
    let whole = |percent: f64| percent.clamp(0.0, 100.0).round();
    Some(format!(
        "{} % ({} to {} %)",
        whole(gain.likely),
        whole(gain.low),
        whole(gain.high)
    ))
}

/// The false part's cost, as in `5.7 % falsely`, for mixed sharing that is present.
pub(crate) fn false_part(finding: &Finding) -> Option<String> {
    (finding.sharing == Sharing::Mixed && !finding.latent)
        .then(|| format!("{} falsely", percent(finding.false_cost_percent())))
}

/// The number of threads that take part. On pages, not all of them touch the bytes that are
/// shown.
pub(crate) fn threads_of(finding: &Finding) -> usize {
    match &finding.on_pages {
        Some(pages) => pages.threads.len(),
        None => finding.threads().len(),
    }
}

/// The sharing that would remain with lines of another size, if that was determined.
pub(crate) fn on_smaller_lines(finding: &Finding) -> Option<String> {
    let smaller = finding.on_smaller_lines?;
    let left = match smaller.sharing {
        None => "nothing of this would be left",
        Some(Sharing::True) if finding.sharing != Sharing::True => {
            "only true sharing would be left"
        }
        Some(Sharing::True) => "it would be true sharing all the same",
        Some(Sharing::False) => "there would be false sharing all the same",
        Some(Sharing::Mixed) => "there would be true and false sharing all the same",
    };
    Some(format!("On lines of {} bytes {left}.", smaller.line_size))
}

/// The findings that are not shown, if any, as in `1 truly shared object below 1 %`.
pub(crate) fn hidden(counts: Counts, threshold: f64) -> Option<String> {
    let mut parts = Vec::new();
    if counts.truly_below > 0 {
        parts.push(counted(counts.truly_below, "truly shared object"));
    }
    if counts.below > 0 {
        parts.push(counted(counts.below, "falsely shared object"));
    }
    let below = percent(threshold);
    (!parts.is_empty()).then(|| format!("{} below {below}", parts.join(" and ")))
}
