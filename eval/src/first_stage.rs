//! `first-stage`: how well what is seen at first tells programs that share falsely from others, as in the
//! thesis' Table 4.1 and Figures 4.2 and 5.1. There hardware counts accesses to lines that another core
//! has changed (HITM). In virtual machines there is no such counter; we have the turns of threads on lines
//! that samples show. The five programs `listing_a1_v1` to `v5` are the modes of the thesis' Listing A.1.

use crate::measure::{median, quantile};
use crate::options::{Options, Set};
use crate::programs::{self, Target};
use crate::record::Record;
use crate::remedy::each_pair;
use anyhow::Result;
use std::fmt::Write as _;
use std::path::Path;
use sunder_findings::Findings;
use sunder_workloads::{Variant, Workload};

/// Parts of a run, for the figure over time.
const PARTS: usize = 10;

/// What was seen of a program.
struct Seen {
    /// Whether the table of verdicts says that sharing, false or true, must be found in it.
    shares: bool,
    /// Turns of threads on lines in a second of the program's CPU time, in each run.
    rates: Vec<f64>,
    /// Runs in which a line was suspected, so that the later stages looked closer.
    suspected: usize,
    /// Turns in a second, in each part of the last run.
    over_time: [f64; PARTS],
}

/// Runs the benchmark, with programs of about `seconds`.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options, seconds: f64) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        match options.set {
            Set::Workloads => "first-stage",
            Set::Pairs => "first-stage-pairs",
        },
        "Turns of threads on cache lines, as samples show them, in programs with false sharing as they \
         are and fixed by hand; and whether a line was suspected, so that the later stages looked closer \
         (the thesis, Table 4.1, Figures 4.2 and 5.1, with samples in place of counters).",
        options.repetitions,
        &[
            "workload",
            "variant",
            "run",
            "turns_per_cpu_second",
            "suspected_ms",
        ],
    )?;
    let rows = each_pair(options, seconds, |workload, [shared, fixed]| {
        let mut look = |target: &Target, variant: Variant| {
            seen(&sunder, options, workload, target, variant, &mut record)
        };
        let both = [look(shared, Variant::Shared)?, look(fixed, Variant::Fixed)?];
        println!("{}", workload.name);
        Ok((workload.name.clone(), both))
    })?;
    record.finish(&summary(&rows, options.repetitions as usize))
}

fn seen(
    sunder: &Path,
    options: &Options,
    workload: &Workload,
    target: &Target,
    variant: Variant,
    record: &mut Record,
) -> Result<Seen> {
    let mut seen = Seen {
        shares: workload.verdict(variant).must_find().next().is_some(),
        rates: Vec::new(),
        suspected: 0,
        over_time: [0.0; PARTS],
    };
    for i in 0..options.repetitions {
        let result = programs::findings(target, sunder, &[])?;
        let cpu = result.run.program_cpu_seconds.unwrap_or(result.run.seconds);
        seen.over_time = over_time(&result);
        let turns = seen.over_time.iter().sum::<f64>() / PARTS as f64 * result.run.seconds;
        let rate = turns / cpu.max(1e-9);
        let suspected = result.run.first_contention_seconds;
        seen.suspected += usize::from(suspected.is_some());
        record.row(&[
            workload.name.clone(),
            variant.name().into(),
            seen.shares.to_string(),
            i.to_string(),
            format!("{rate:.0}"),
            suspected.map_or_else(String::new, |s| format!("{:.0}", s * 1e3)),
        ])?;
        seen.rates.push(rate);
    }
    Ok(seen)
}

/// Turns in a second of all objects together, in equal parts of the run.
fn over_time(result: &Findings) -> [f64; PARTS] {
    let mut parts = [0.0; PARTS];
    for finding in result.findings.iter().filter(|f| !f.latent) {
        let slices = finding.timeline.len();
        for (n, turns) in finding.timeline.iter().enumerate() {
            // Slices are many times as many as parts.
            parts[n * PARTS / slices] += turns * PARTS as f64 / slices as f64;
        }
    }
    parts
}

fn summary(rows: &[(String, [Seen; 2])], runs: usize) -> String {
    let rate = |seen: &Seen| median(&seen.rates) / 1e3;
    let of = |shares: bool| {
        let all = rows.iter().flat_map(|(_, both)| both);
        let all: Vec<&Seen> = all.filter(|seen| seen.shares == shares).collect();
        let rates: Vec<f64> = all.iter().map(|seen| rate(seen)).collect();
        let suspected = all.iter().map(|seen| seen.suspected).sum::<usize>();
        (all.len(), rates, suspected)
    };
    let mut text = String::from(
        "Programs as they are and fixed by hand, by what the table of verdicts says of them; turns in a \
         second of CPU time, thousands, medians of each program's runs:\n\n\
         | sharing, false or true, must be found | programs | lowest | median | highest | a line was suspected \
         in runs |\n|---|---|---|---|---|---|\n",
    );
    for (name, shares) in [("yes", true), ("no", false)] {
        let (count, rates, suspected) = of(shares);
        let _ = writeln!(
            text,
            "| {name} | {count} | {:.1} | {:.1} | {:.1} | {suspected} of {} |",
            quantile(&rates, 0.0),
            median(&rates),
            quantile(&rates, 1.0),
            count * runs,
        );
    }
    text.push_str(
        "\n| program | as it is, thousands | suspected in runs | fixed | suspected in runs | as it is, in \
         tenths of the run, thousands a second |\n|---|---|---|---|---|---|\n",
    );
    for (name, [shared, fixed]) in rows {
        let parts = shared.over_time.map(|turns| format!("{:.0}", turns / 1e3));
        let _ = writeln!(
            text,
            "| {name} | {:.1} | {} of {runs} | {:.1} | {} of {runs} | {} |",
            rate(shared),
            shared.suspected,
            rate(fixed),
            fixed.suspected,
            parts.join(" "),
        );
    }
    text
}
