//! Two results before and after, as one page with bars. Called for `sunder diff`. Like the report it
//! needs nothing else, and nothing here marks text as safe.

use super::card::{Part, parts};
use crate::clean::clean;
use crate::describe::{self, ChangeVerdict};
use crate::figures::{counted, percent};
use askama::Template;
use sunder_findings::{Change, Comparison, Findings, Measure, Sharing};

#[derive(Template)]
#[template(path = "comparison.html")]
struct Page {
    tool: String,
    command: String,
    answer: String,
    /// The class of the heading: `alarm`, `good` or none.
    mood: &'static str,
    caveats: Vec<String>,
    sides: [Side; 2],
    groups: Vec<Group>,
    noise: String,
}

/// One of the two runs, in short facts.
struct Side {
    name: &'static str,
    command: String,
    facts: Vec<String>,
    found: String,
}

/// Changes of one kind.
struct Group {
    title: &'static str,
    /// Whether it opens unfolded.
    open: bool,
    rows: Vec<Row>,
}

struct Row {
    class: &'static str,
    subject: String,
    place: String,
    kind: &'static str,
    /// Without bars: what lies only in another layout costs nothing here.
    note: Option<&'static str>,
    before: Bar,
    after: Bar,
    /// What to do about it, for what is worse than before.
    advice: Vec<Part>,
}

struct Bar {
    /// Percent of the threads' time, from 0 to 100, for the style sheet.
    length: String,
    text: String,
}

/// The comparison of two results as one self-contained HTML page.
pub fn comparison_html(comparison: &Comparison, old: &Findings, new: &Findings) -> String {
    let (verdict, answer) = describe::change_answer(comparison);
    let lists = [
        ("Appeared", &comparison.appeared, true),
        ("Grew", &comparison.grew, true),
        ("Gone", &comparison.gone, true),
        ("Shrank", &comparison.shrank, true),
        ("Unchanged", &comparison.unchanged, false),
    ];
    let groups = lists
        .into_iter()
        .filter(|(_, changes, _)| !changes.is_empty());
    let page = Page {
        tool: clean(&new.tool),
        command: describe::command(new),
        answer,
        mood: match verdict {
            ChangeVerdict::Worse => "alarm",
            ChangeVerdict::Better | ChangeVerdict::Same => "good",
            ChangeVerdict::Other | ChangeVerdict::Unknown => "",
        },
        caveats: comparison.caveats.iter().map(|c| clean(c)).collect(),
        sides: [Side::of("Before", old), Side::of("After", new)],
        groups: groups
            .map(|(title, changes, open)| Group {
                title,
                open,
                rows: changes.iter().map(|c| Row::new(c, new)).collect(),
            })
            .collect(),
        noise: format!(
            "A cost counts as changed from a factor of {} and {} points of percent.",
            comparison.noise_factor, comparison.noise_percent
        ),
    };
    // Writing to a string fails only if a field's `Display` fails, and all fields are strings.
    page.render()
        .unwrap_or_else(|error| format!("<!doctype html><p>The comparison failed: {error}</p>"))
}

impl Side {
    fn of(name: &'static str, all: &Findings) -> Self {
        let significant = describe::Counts::of(all, all.run.threshold_percent).significant;
        Self {
            name,
            command: describe::command(all),
            facts: describe::run_facts(all),
            found: format!("{} falsely shared", counted(significant, "object")),
        }
    }
}

impl Row {
    fn new(change: &Change, new: &Findings) -> Self {
        let worse = change.old.is_none_or(|old| {
            change
                .new
                .is_some_and(|new| new.cost_percent > old.cost_percent)
        });
        let advised = change.new.filter(|_| worse).and_then(|measure| {
            let finding = new.findings.iter().find(|f| f.rank == measure.rank)?;
            finding.advice.first()
        });
        Self {
            class: match (change.latent, change.sharing) {
                (true, _) => "latent",
                (false, Sharing::False) => "false",
                (false, Sharing::True) => "true",
                (false, Sharing::Mixed) => "mixed",
            },
            subject: clean(&change.subject),
            place: change
                .place
                .as_ref()
                .map(describe::place)
                .unwrap_or_default(),
            kind: describe::change_kind(change).unwrap_or("false sharing"),
            note: change.latent.then_some("costs nothing here"),
            before: Bar::of(change.old),
            after: Bar::of(change.new),
            advice: advised.map(|a| parts(&a.text)).unwrap_or_default(),
        }
    }
}

impl Bar {
    fn of(measure: Option<Measure>) -> Self {
        let cost = measure.map_or(0.0, |m| m.cost_percent);
        let cost = if cost.is_finite() { cost } else { 0.0 };
        Self {
            length: format!("{:.1}", cost.clamp(0.0, 100.0)),
            text: measure.map_or_else(|| "not found".to_owned(), |_| percent(cost)),
        }
    }
}
