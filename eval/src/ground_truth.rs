//! `ground-truth`: the sampling detector against exact verdicts. Each workload is compiled for
//! tracing, and a short run of it is recorded and replayed; what is significant in the replay is
//! the truth. The same program, built as usual, runs under `detect`. Rust programs are recorded
//! under the emulator, in the build that is detected. `matching` defines a match.
//!
//! The truth is that of a machine on which every thread has a CPU of its own and all run in step,
//! so it may have sharing that does not occur on this machine; both costs are recorded.

mod matching;

use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use matching::{Instead, Match, Outcome, compare, subjects};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use sunder_findings::{DEFAULT_THRESHOLD_PERCENT, Findings, Sharing};
use sunder_workloads::{Language, Variant, Workload, default_out_dir};

/// Workloads are recorded at the tests' size divided by this: what is shared does not depend on the
/// length of the run, and tracing takes long.
const PART: u64 = 100;

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let folder = default_out_dir().join("ground-truth");
    std::fs::create_dir_all(&folder)?;
    let mut record = Record::new(
        "ground-truth",
        &format!(
            "Precision and recall of `sunder detect` at its default threshold against replayed \
             traces. The truth of a workload: its trace, at a size {PART} times smaller than that of \
             the tests, replayed on a node for each thread, 64-byte lines, MESI, infinite caches; \
             false and mixed sharing whose false part costs {DEFAULT_THRESHOLD_PERCENT} % or more. \
             Detected: the same program, built as usual, at `--scale` times the size of the tests. \
             Two findings match if they have an object in common: a heap object by function and line \
             of its allocation, a variable by its name (see eval/src/ground_truth/matching.rs)."
        ),
        options.repetitions,
        &[
            "workload",
            "variant",
            "run",
            "outcome",
            "truth_kind",
            "truth_cost_percent",
            "detected_kind",
            "detected_cost_percent",
            "object",
        ],
    )?;
    let mut tally = Tally::default();
    let all = programs::workloads(options)?;
    // Replays are not timed, so they may run side by side; the detector runs alone.
    let truths = all
        .par_iter()
        .map(|(workload, variant, _)| truth(workload, *variant, &sunder, &folder))
        .collect::<Result<Vec<_>>>()?;
    for ((workload, variant, target), truth) in all.into_iter().zip(truths) {
        let Some(truth) = truth else {
            tally
                .skipped
                .push(format!("{} {}", workload.name, variant.name()));
            continue;
        };
        let truth = subjects(&truth, DEFAULT_THRESHOLD_PERCENT);
        for i in 0..options.repetitions {
            let seen = programs::findings(&target, &sunder, &[])?;
            let seen = subjects(&seen, DEFAULT_THRESHOLD_PERCENT);
            for found in compare(&truth, &seen) {
                record.row(&row(&workload, variant, i, &found))?;
                tally.add(&workload, variant, &found)?;
            }
            tally.runs += 1;
        }
        println!("{} {}", workload.name, variant.name());
    }
    record.finish(&tally.summary())
}

/// The result of replaying a short run; `None` if it can't be recorded here.
fn truth(
    workload: &Workload,
    variant: Variant,
    sunder: &Path,
    folder: &Path,
) -> Result<Option<Findings>> {
    let program = folder.join(format!("{}-{}", workload.name, variant.name()));
    // A single Rust file is no package that `sunder cargo` could build, so it is recorded
    // unmodified, under the emulator.
    let via = match workload.language {
        Language::C => {
            workload.compile_with(variant, Command::new(sunder).arg("cc"), &program)?;
            "instrumented"
        }
        Language::Cpp => {
            workload.compile_with(variant, Command::new(sunder).arg("c++"), &program)?;
            "instrumented"
        }
        Language::Rust => {
            if Command::new("qemu-x86_64")
                .arg("--version")
                .output()
                .is_err()
            {
                println!(
                    "SKIP: {}: qemu-x86_64 (Debian's package qemu-user) is not installed",
                    workload.name
                );
                return Ok(None);
            }
            std::fs::copy(workload.build(variant, &default_out_dir())?, &program)?;
            "emulated"
        }
    };
    let trace = program.with_extension("trace");
    let size = (workload.size / PART).max(1);
    succeed(
        Command::new(sunder)
            .args(["trace", "--via", via, "-o"])
            .arg(&trace)
            .arg("--")
            .arg(&program)
            .args([workload.threads.to_string(), size.to_string()]),
    )?;
    let result = program.with_extension("json");
    succeed(
        Command::new(sunder)
            .args(["simulate", "--quiet", "--format", "json", "-o"])
            .arg(&result)
            .arg(&trace),
    )?;
    let found = Findings::open(&result)?;
    for file in [&program, &trace, &result] {
        std::fs::remove_file(file)?;
    }
    Ok(Some(found))
}

fn succeed(command: &mut Command) -> Result<()> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    let stderr = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{command:?}: {}: {stderr}",
        done.status
    );
    Ok(())
}

fn row(workload: &Workload, variant: Variant, run: u32, found: &Match) -> Vec<String> {
    let (truth, detected) = (found.truth.as_ref(), found.detected.as_ref());
    let kind = |s: Option<&matching::Subject>| s.map_or("", |s| kind(s.sharing)).to_owned();
    let cost =
        |s: Option<&matching::Subject>| s.map_or(String::new(), |s| format!("{:.2}", s.cost));
    let name = truth
        .or(detected)
        .map_or_else(String::new, matching::Subject::name);
    vec![
        workload.name.clone(),
        variant.name().to_owned(),
        run.to_string(),
        found.outcome.words().to_owned(),
        kind(truth),
        cost(truth),
        kind(detected),
        cost(detected),
        format!("\"{}\"", name.replace('"', "'")),
    ]
}

const fn kind(sharing: Sharing) -> &'static str {
    match sharing {
        Sharing::False => "false",
        Sharing::True => "true",
        Sharing::Mixed => "mixed",
    }
}

/// The sums over all runs.
#[derive(Default)]
struct Tally {
    runs: u32,
    outcomes: BTreeMap<Outcome, u32>,
    /// For each finding in both, its kind in the truth and in the detector's result.
    kinds: BTreeMap<(Sharing, Sharing), u32>,
    /// Lines of the table of misses and false alarms, with their counts.
    differences: BTreeMap<String, u32>,
    skipped: Vec<String>,
}

impl Tally {
    fn add(&mut self, workload: &Workload, variant: Variant, found: &Match) -> Result<()> {
        *self.outcomes.entry(found.outcome).or_default() += 1;
        let sharing = |s: &Option<matching::Subject>| s.as_ref().map(|s| s.sharing);
        if found.outcome == Outcome::Found {
            let truth = sharing(&found.truth).context("found in the truth")?;
            let detected = sharing(&found.detected).context("found by the detector")?;
            *self.kinds.entry((truth, detected)).or_default() += 1;
            return Ok(());
        }
        let of = |s: &Option<matching::Subject>| match s {
            Some(s) => kind(s.sharing),
            None => "-",
        };
        let subject = found.truth.as_ref().or(found.detected.as_ref());
        let line = format!(
            "{} | {} | {} | {} | {} | {}",
            workload.name,
            variant.name(),
            found.outcome.words(),
            subject.map_or_else(String::new, matching::Subject::name),
            of(&found.truth),
            of(&found.detected),
        );
        *self.differences.entry(line).or_default() += 1;
        Ok(())
    }

    fn count(&self, wanted: impl Fn(&Outcome) -> bool) -> u32 {
        let all = self.outcomes.iter().filter(|(outcome, _)| wanted(outcome));
        all.map(|(_, count)| count).sum()
    }

    fn summary(&self) -> String {
        let found = self.count(|o| *o == Outcome::Found);
        let missed = self.count(|o| matches!(o, Outcome::Missed(_)));
        let alarms = self.count(|o| matches!(o, Outcome::FalseAlarm(_)));
        // False sharing in the trace, too, but below the threshold: true, and not worth reporting.
        let cheap = self.count(|o| *o == Outcome::FalseAlarm(Instead::BelowThreshold));
        let agreeing: u32 = self
            .kinds
            .iter()
            .filter(|((truth, detected), _)| truth == detected)
            .map(|(_, count)| count)
            .sum();
        let mut text = format!(
            "{} runs. Objects that are significant in both: {found}; in the trace only: {missed}; \
             detected only: {alarms}.\n\n\
             - recall: {}\n- precision: {} ({} if what is falsely shared in the trace below the \
             threshold counts as right)\n- the same kind of sharing, of what was found: {}\n",
            self.runs,
            percent(found, found + missed),
            percent(found, found + alarms),
            percent(found + cheap, found + alarms),
            percent(agreeing, found),
        );
        text += "\n| outcome | objects |\n|---|---|\n";
        for (outcome, count) in &self.outcomes {
            text += &format!("| {} | {count} |\n", outcome.words());
        }
        text += "\n| kind in the trace | detected | objects |\n|---|---|---|\n";
        for ((truth, detected), count) in &self.kinds {
            text += &format!("| {} | {} | {count} |\n", kind(*truth), kind(*detected));
        }
        text += "\nWhat differs:\n\n| workload | variant | outcome | object | in the trace | \
                 detected | runs |\n|---|---|---|---|---|---|---|\n";
        for (line, count) in &self.differences {
            text += &format!("| {line} | {count} |\n");
        }
        if !self.skipped.is_empty() {
            let _ = write!(text, "\nNot recorded: {}.\n", self.skipped.join(", "));
        }
        text
    }
}

fn percent(part: u32, of: u32) -> String {
    if of == 0 {
        return "nothing to count".to_owned();
    }
    format!(
        "{:.1} % ({part} of {of})",
        f64::from(part) / f64::from(of) * 100.0
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn found_missed_and_additional_findings_are_counted() {
        let mut tally = Tally::default();
        let table = sunder_workloads::Table::load().expect("the table");
        let workload = &table.workloads[0];
        let subject = |sharing| {
            Some(matching::Subject {
                keys: ["global x".to_owned()].into(),
                sharing,
                standing: sunder_findings::Standing::Significant,
                cost: 50.0,
            })
        };
        let mut add = |outcome, truth, detected| {
            let found = Match {
                outcome,
                truth,
                detected,
            };
            tally
                .add(workload, Variant::Shared, &found)
                .expect("complete");
        };
        let (fs, mixed) = (Sharing::False, Sharing::Mixed);
        add(Outcome::Found, subject(fs), subject(fs));
        add(Outcome::Found, subject(fs), subject(mixed));
        add(Outcome::Found, subject(fs), subject(fs));
        add(Outcome::Missed(Instead::Nothing), subject(fs), None);
        add(
            Outcome::FalseAlarm(Instead::BelowThreshold),
            subject(fs),
            subject(fs),
        );
        add(Outcome::FalseAlarm(Instead::Nothing), None, subject(fs));
        let text = tally.summary();
        assert!(text.contains("recall: 75.0 % (3 of 4)"), "{text}");
        assert!(
            text.contains("precision: 60.0 % (3 of 5) (80.0 % (4 of 5) if"),
            "{text}"
        );
        assert!(
            text.contains("of what was found: 66.7 % (2 of 3)"),
            "{text}"
        );
        assert!(text.contains("| false | mixed | 1 |"), "{text}");
    }
}
