//! The report as one page that needs nothing else: style, script and pictures are part of it,
//! and its content security policy forbids it to load anything. All names pass through the
//! template's escaping; nothing here marks text as safe.

mod card;
mod code;
mod comparison;
mod facets;
mod fleet;
mod heatmap;
mod place;
mod timeline;

use crate::clean::clean;
use crate::describe::{self, Counts};
use crate::figures::{grouped, percent, seconds};
use askama::Template;
use card::Card;
pub use comparison::comparison_html;
use facets::Facet;
pub use fleet::fleet_html;
use sunder_findings::{Exit, Findings};

#[derive(Template)]
#[template(path = "report.html")]
struct Report {
    title: String,
    tool: String,
    command: String,
    answer: String,
    alarm: bool,
    facts: Vec<String>,
    /// Sentences for a run that found nothing significant.
    looked_at: Vec<String>,
    cards: Vec<Card>,
    /// The lists of the filter.
    facets: Vec<Facet>,
    /// The changes that were tried, and the total that the figures refer to.
    tried: Vec<describe::TriedRow>,
    tried_of: Option<String>,
    /// Whether all findings are folded.
    folded: bool,
    /// The number of folded findings, in words.
    hidden: Option<String>,
    /// Sentences, split at their backquotes.
    limits: Vec<Vec<card::Part>>,
    machine: Vec<(&'static str, String)>,
}

/// The result as one self-contained HTML page.
pub fn html(findings: &Findings) -> String {
    let threshold = findings.run.threshold_percent;
    let counts = Counts::of(findings, threshold);
    let (facets, keys) = facets::facets(findings);
    let cards: Vec<Card> = keys
        .into_iter()
        .enumerate()
        .map(|(at, keys)| Card::new(findings, at, keys, threshold))
        .collect();
    let report = Report {
        folded: cards.iter().all(|c| c.minor),
        title: format!("Sunder: {}", describe::command(findings)),
        tool: clean(&findings.tool),
        command: describe::command(findings),
        answer: describe::answer(findings, threshold),
        alarm: counts.significant > 0,
        facts: describe::run_facts(findings),
        looked_at: if counts.significant == 0 {
            describe::looked_at(findings)
        } else {
            Vec::new()
        },
        cards,
        facets,
        tried: describe::tried(findings),
        tried_of: describe::tried_of(findings),
        hidden: describe::hidden(counts, threshold),
        limits: findings
            .limits
            .iter()
            .map(|l| card::parts(&l.to_string()))
            .collect(),
        machine: machine(findings),
    };
    // Writing to a string fails only if a field's `Display` fails, and all fields are strings
    // and numbers.
    report
        .render()
        .unwrap_or_else(|error| format!("<!doctype html><p>The report failed: {error}</p>"))
}

fn machine(all: &Findings) -> Vec<(&'static str, String)> {
    let (machine, run) = (&all.machine, &all.run);
    let mut facts = vec![("Command", describe::command(all))];
    if let Some(path) = &all.program.path {
        facts.push(("Program", clean(path)));
    }
    facts.push((
        "End",
        match all.program.exit {
            None => "still running when the observation ended".to_owned(),
            Some(Exit::Status(status)) => format!("exit status {status}"),
            Some(Exit::Signal(signal)) => format!("killed by signal {signal}"),
        },
    ));
    let host = if machine.virtualized {
        ", virtual machine"
    } else {
        ""
    };
    facts.push((
        "Machine",
        format!(
            "{}, {} CPUs, lines of {} bytes, Linux {}{host}",
            clean(&machine.cpu),
            machine.cpus,
            machine.line_size,
            clean(&machine.kernel)
        ),
    ));
    if let Some(ns) = machine.transfer_ns {
        facts.push(("Line transfer", format!("{ns:.0} ns between two cores")));
    }
    let frequency = run.frequency_hz.map_or_else(String::new, |(low, high)| {
        if low == high {
            format!(", {} Hz a thread", grouped(low.into()))
        } else {
            format!(
                ", {} to {} Hz a thread",
                grouped(low.min(high).into()),
                grouped(high.max(low).into())
            )
        }
    });
    facts.push((
        "Observed",
        format!(
            "{} by {}{frequency}; {} samples, {} lost",
            seconds(run.seconds),
            clean(&run.observer),
            grouped(run.samples),
            grouped(run.lost_samples)
        ),
    ));
    facts.push((
        "Accesses",
        format!(
            "{} with known addresses, {} trapped by watchpoints",
            grouped(run.accesses),
            grouped(run.watched_accesses)
        ),
    ));
    if let Some(simulation) = &all.simulation {
        let (machine, rows) = describe::simulated(simulation);
        facts.push(("Simulated", clean(&machine)));
        let figures = rows.iter().map(|(label, figure)| {
            let figure: Vec<&str> = figure.split_whitespace().collect();
            (*label, figure.join(" "))
        });
        facts.extend(figures);
        if let Some(placed) = describe::placed(simulation) {
            facts.push(("Placement", placed));
        }
    }
    facts.push((
        "Own cost",
        format!("{} of CPU time", seconds(run.observer_cpu_seconds)),
    ));
    facts.push((
        "Significant from",
        format!("{} of the threads' time", percent(run.threshold_percent)),
    ));
    facts
}
