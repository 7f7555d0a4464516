//! The report for a terminal: the result first, then each finding, then what could not be
//! observed. Called by the command line. No line is wider than requested, and there are no
//! escape sequences unless colour was requested.

mod comparison;
mod explanation;
mod finding;
mod fleet;
mod fleet_markdown;
mod markdown;
mod options;
mod page;
mod picture;
mod summary;
mod watched;

pub use comparison::comparison_text;
pub use explanation::explanation;
pub use fleet::fleet_text;
pub use fleet_markdown::fleet_markdown;
pub use markdown::comparison_markdown;
pub(crate) use markdown::{escaped, with_code};
pub use options::TextOptions;
pub use watched::watched_text;

use crate::describe::{self, Counts};
use page::{Page, Paint};
use sunder_findings::{Answer, Finding, Findings, Limit, Standing};

/// The most findings that are shown in full; the others get a heading each. With that many, a
/// user fixes the first ones and runs again.
const FULL: usize = 10;

/// The result for a terminal.
pub fn text(findings: &Findings, options: &TextOptions) -> String {
    let threshold = options.threshold.unwrap_or(findings.run.threshold_percent);
    let counts = Counts::of(findings, threshold);
    let mut page = Page::new(options);
    head(&mut page, findings, threshold, counts);
    what_if(&mut page, findings, options);
    let shown: Vec<_> = findings
        .findings
        .iter()
        .filter(|f| match f.standing(threshold) {
            Standing::Significant => true,
            Standing::BelowThreshold | Standing::TrueSharing => options.all,
            Standing::Latent => false,
        })
        .collect();
    let significant = shown
        .iter()
        .filter(|f| f.standing(threshold) == Standing::Significant);
    summary::summary(&mut page, &significant.copied().collect::<Vec<_>>());
    let full = if options.all { shown.len() } else { FULL };
    for (i, one) in shown.iter().enumerate() {
        if i < full {
            finding::full(&mut page, findings, one, options);
        } else {
            finding::mention(&mut page, one, i == full);
        }
    }
    truly(&mut page, findings, threshold, options);
    latent(&mut page, findings, counts, options);
    foot(&mut page, findings, threshold, counts, options);
    page.finish()
}

/// Everything about one finding of `findings`, for a terminal.
pub fn one_finding(findings: &Findings, one: &Finding, options: &TextOptions) -> String {
    let mut page = Page::new(options);
    finding::full(&mut page, findings, one, options);
    page.finish()
}

/// The picture of the line of a finding with most interleavings, for a terminal. Empty if no line is
/// known.
pub fn line_picture(findings: &Findings, one: &Finding, options: &TextOptions) -> String {
    let mut page = Page::new(options);
    finding::picture_of_hottest(&mut page, findings, one);
    page.finish()
}

fn head(page: &mut Page, all: &Findings, threshold: f64, counts: Counts) {
    let paint = match all.answer(threshold).answer {
        Answer::Found => Paint::Alarm,
        Answer::Inconclusive => Paint::Bold,
        Answer::None => Paint::Good,
    };
    page.paragraph("", "", paint, &describe::answer(all, threshold));
    page.line(&[(Paint::Dim, &describe::command(all))]);
    page.line(&[(Paint::Dim, &describe::run_facts(all).join(" · "))]);
    if let Some(simulation) = &all.simulation {
        let (machine, rows) = describe::simulated(simulation);
        page.blank();
        page.line(&[(Paint::Bold, "Simulated "), (Paint::Plain, &machine)]);
        for (label, figure) in rows {
            page.line(&[(Paint::Plain, &format!("  {label:<26}{figure}"))]);
        }
        if let Some(placed) = describe::placed(simulation) {
            page.paragraph("  ", "  ", Paint::Plain, &placed);
        }
    }
    if counts.significant == 0 {
        page.blank();
        for sentence in describe::looked_at(all) {
            page.paragraph("", "", Paint::Plain, &sentence);
        }
    }
}

/// The most changes that are shown without `--all`.
const TRIED: usize = 8;

/// Writes the changes that were tried, the best first.
fn what_if(page: &mut Page, all: &Findings, options: &TextOptions) {
    let Some(of) = describe::tried_of(all) else {
        return;
    };
    page.blank();
    page.line(&[(Paint::Bold, "What if")]);
    page.paragraph("  ", "  ", Paint::Dim, &format!("{of}."));
    let rows = describe::tried(all);
    let helps = rows.iter().filter(|row| row.helps).count();
    let most = if options.all {
        rows.len()
    } else {
        TRIED.min(helps)
    };
    for (number, row) in rows.iter().take(most).enumerate() {
        let paint = if row.helps { Paint::Good } else { Paint::Dim };
        let bytes = match row.bytes.as_str() {
            "" => String::new(),
            bytes => format!(", {bytes}"),
        };
        let place = format!("  {:>2}. ", number + 1);
        page.paragraph(&place, "      ", paint, &format!("{}{bytes}", row.saves));
        let what = format!("{}: {}", row.about, row.change);
        page.paragraph("      ", "        ", Paint::Plain, &what);
        page.paragraph("      ", "        ", Paint::Code, &row.arguments);
    }
    if rows.is_empty() {
        page.line(&[(
            Paint::Plain,
            "  No object has a name by which it could be changed.",
        )]);
    } else if rows.len() > most {
        let left = rows.len() - most;
        let what = match (most < helps, left) {
            (true, 1) => "saves less",
            (true, _) => "save less",
            (false, 1) => "saves nothing",
            (false, _) => "save nothing",
        };
        let text = format!(
            "  … {} that {what} (--all)",
            crate::figures::counted(left, "change")
        );
        page.line(&[(Paint::Dim, &text)]);
    }
}

/// The most truly shared objects that are shown without `--all`.
const TRULY: usize = 3;

/// Writes the costly findings of true sharing in a few lines each; with `--all` they are shown in
/// full before.
fn truly(page: &mut Page, all: &Findings, threshold: f64, options: &TextOptions) {
    let costly = |f: &&Finding| f.standing(threshold) == Standing::TrueSharing;
    let costly: Vec<_> = all.findings.iter().filter(costly).collect();
    if costly.is_empty() || options.all {
        return;
    }
    page.blank();
    page.line(&[
        (Paint::Bold, "Truly shared"),
        (
            Paint::Dim,
            ": another layout mostly does not help, less use of it does",
        ),
    ]);
    for one in costly.iter().take(TRULY) {
        finding::brief(page, one);
    }
    if let Some(more) = costly.len().checked_sub(TRULY).filter(|more| *more > 0) {
        page.blank();
        let more = crate::figures::counted(more, "more truly shared object");
        page.line(&[(Paint::Dim, &format!("… {more} (--all)"))]);
    }
}

fn latent(page: &mut Page, all: &Findings, counts: Counts, options: &TextOptions) {
    if counts.latent == 0 {
        return;
    }
    page.blank();
    page.line(&[
        (Paint::Bold, "Latent"),
        (Paint::Dim, ": cost nothing in this run"),
    ]);
    for one in all.findings.iter().filter(|f| f.latent) {
        if options.all {
            finding::full(page, all, one, options);
        } else {
            finding::brief(page, one);
        }
    }
}

/// The topics of what is shown, each once.
fn topics(all: &Findings, threshold: f64, options: &TextOptions) -> Vec<&'static str> {
    let mut topics: Vec<&'static str> = Vec::new();
    let mut add = |topic| {
        if !topics.contains(&topic) {
            topics.push(topic);
        }
    };
    for finding in &all.findings {
        let standing = finding.standing(threshold);
        if options.all || standing != Standing::BelowThreshold {
            add(finding.topic());
            if !finding.latent {
                add(if finding.gain_percent.is_some() {
                    "gain"
                } else {
                    "cost"
                });
            }
        }
    }
    let reasons = all.answer(threshold).reasons;
    reasons.iter().for_each(|reason| add(reason.topic()));
    all.limits.iter().filter_map(Limit::topic).for_each(add);
    topics
}

fn foot(page: &mut Page, all: &Findings, threshold: f64, counts: Counts, options: &TextOptions) {
    if let (Some(hidden), false) = (describe::hidden(counts, threshold), options.all) {
        page.blank();
        page.paragraph("", "", Paint::Dim, &format!("Not shown: {hidden} (--all)."));
    }
    if !all.limits.is_empty() {
        page.blank();
        page.line(&[(Paint::Bold, "Limits of this run")]);
        for limit in &all.limits {
            page.paragraph("  - ", "    ", Paint::Plain, &limit.to_string());
        }
    }
    let topics = topics(all, threshold, options);
    if !topics.is_empty() {
        page.blank();
        let topics = topics.join(", ");
        page.paragraph(
            "",
            "",
            Paint::Dim,
            &format!("`sunder explain` knows more of: {topics}."),
        );
    }
}
