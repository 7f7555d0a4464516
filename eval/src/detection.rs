//! `detection`: the findings in our workloads, in the form of SHERIFF's Tables 1 and 2, beside the
//! expected ones.

use crate::measure::median;
use crate::options::{Options, Set};
use crate::programs;
use crate::record::Record;
use anyhow::Result;
use std::fmt::Write as _;
use sunder_findings::{Finding, Findings, Sharing};

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        match options.set {
            Set::Workloads => "detection",
            Set::Pairs => "detection-pairs",
        },
        "Objects that `sunder detect` reports as falsely shared (false or mixed, above the \
         threshold) in each workload, beside what the table of verdicts expects. `all` counts \
         objects without the threshold, as SHERIFF's Table 2 does.",
        options.repetitions,
        &[
            "workload",
            "variant",
            "run",
            "expected",
            "reported",
            "all",
            "cost_percent",
            "confirmed",
            "first_contention_ms",
            "first",
        ],
    )?;
    let mut table = String::from(
        "| workload | variant | ratio | expected | reported in runs | objects | all | cost % | \
         confirmed in runs | first contention ms | first object |\n|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let (mut misses, mut false_alarms, mut runs) = (0, 0, 0);
    for (workload, variant, target) in programs::workloads(options)? {
        let expected = workload
            .verdict(variant)
            .must_find()
            .filter(|f| !f.is_true_sharing())
            .count();
        let allowed = workload
            .verdict(variant)
            .findings
            .iter()
            .any(|f| !f.is_true_sharing());
        let (mut hits, mut confirmed) = (0, 0);
        let mut last = (0, 0, 0.0, String::new());
        let mut firsts = Vec::new();
        for i in 0..options.repetitions {
            let seen = programs::findings(&target, &sunder, &[])?;
            let (reported, all) = falsely_shared(&seen);
            let first = reported.first();
            let name = first.map_or_else(String::new, |f| subject(f));
            let cost = first.map_or(0.0, |f| f.cost_percent);
            let sure = first.is_some_and(|f| f.confirmed);
            hits += u32::from(!reported.is_empty());
            confirmed += u32::from(sure);
            runs += 1;
            if expected > 0 && reported.is_empty() {
                misses += 1;
            }
            if !allowed && !reported.is_empty() {
                false_alarms += 1;
            }
            record.row(&[
                workload.name.clone(),
                variant.name().into(),
                i.to_string(),
                expected.to_string(),
                reported.len().to_string(),
                all.to_string(),
                format!("{cost:.2}"),
                sure.to_string(),
                format!(
                    "{:.0}",
                    seen.run.first_contention_seconds.unwrap_or(0.0) * 1e3
                ),
                format!("\"{}\"", name.replace('"', "'")),
            ])?;
            firsts.extend(seen.run.first_contention_seconds.map(|s| s * 1e3));
            last = (reported.len(), all, cost, name);
        }
        let (reported, all, cost, name) = last;
        writeln!(
            table,
            "| {} | {} | {} | {expected} | {hits} of {} | {reported} | {all} | {cost:.1} | \
             {confirmed} | {:.0} | {name} |",
            workload.name,
            variant.name(),
            if variant.name() == "shared" {
                format!("{:.2}", workload.ratio)
            } else {
                String::new()
            },
            options.repetitions,
            median(&firsts),
        )?;
        println!("{} {}: {hits}", workload.name, variant.name());
    }
    record.finish(&format!(
        "{runs} runs: {misses} misses, {false_alarms} false alarms at the default threshold.\n\n\
         {table}"
    ))
}

/// Findings above the threshold, and the number of all findings.
fn falsely_shared(findings: &Findings) -> (Vec<&Finding>, usize) {
    let all: Vec<&Finding> = findings
        .findings
        .iter()
        .filter(|f| !f.latent && f.sharing != Sharing::True)
        .collect();
    let threshold = findings.run.threshold_percent;
    let reported = findings.significant(threshold).collect();
    (reported, all.len())
}

fn subject(finding: &Finding) -> String {
    finding.subject()
}
