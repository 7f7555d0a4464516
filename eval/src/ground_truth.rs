//! `ground-truth`: the sampling detector against exact verdicts. A short run of each workload is
//! recorded under the emulator, which sees the accesses of the C library, too, and replayed; what is
//! significant there is the truth. The same file runs under `detect`. `matching` defines a match.
//!
//! What threads share depends on when they run. So each trace is replayed in two orders: as if every
//! thread had a CPU of its own and all ran in step, where locks of the program's own order nothing,
//! and as recorded, where the emulator's threads meet seldom. Both costs are recorded.

mod matching;

use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use matching::{Instead, Match, Outcome, Subject, Truth, compare, subjects, truths};
use rayon::prelude::*;
use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use sunder_findings::{Answer, DEFAULT_THRESHOLD_PERCENT, Findings, Reason, Sharing, Verdict};
use sunder_workloads::{Variant, Workload, default_out_dir};

/// Workloads are recorded at the tests' size divided by this, because tracing takes long. Programs
/// share more at their beginning (`word_count` finds new words), so a much smaller part is not like
/// the whole.
const PART: u64 = 20;

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
             traces. The truth of a workload: its trace, recorded under the emulator at a size {PART} \
             times smaller than that of the tests, replayed on a node for each thread, 64-byte lines, \
             MESI, infinite caches; false and mixed sharing whose false part costs \
             {DEFAULT_THRESHOLD_PERCENT} % or more, both with all threads in step and in the recorded \
             order. What costs that much in one of the two orders only is neither missed if it is not \
             reported nor a false alarm if it is; it has rows of its own. Detected: the same program \
             at `--scale` times the size of the tests. Two findings match if they have an object in \
             common: a heap object by function and line \
             of its allocation, a variable by its name (see eval/src/ground_truth/matching.rs)."
        ),
        options.repetitions,
        &[
            "workload",
            "variant",
            "run",
            "outcome",
            "recorded_kind",
            "recorded_cost_percent",
            "in_step_kind",
            "in_step_cost_percent",
            "detected_kind",
            "detected_cost_percent",
            "verdict",
            "object",
        ],
    )?;
    let mut tally = Tally::default();
    let all = programs::workloads(options)?;
    // Replays are not timed, so they may run side by side; the detector runs alone.
    let known = all
        .par_iter()
        .map(|(workload, variant, _)| truth(workload, *variant, &sunder, &folder))
        .collect::<Result<Vec<_>>>()?;
    for ((workload, variant, target), truth) in all.into_iter().zip(known) {
        for i in 0..options.repetitions {
            let result = programs::findings(&target, &sunder, &[])?;
            let seen = subjects(&result, DEFAULT_THRESHOLD_PERCENT);
            let verdict = result.answer(DEFAULT_THRESHOLD_PERCENT);
            for found in compare(&truth, &seen) {
                record.row(&row(&workload, variant, i, &found, &verdict))?;
                tally.add(&workload, variant, &found, &verdict)?;
            }
            tally.runs += 1;
        }
        println!("{} {}", workload.name, variant.name());
    }
    record.finish(&tally.summary())
}

/// What replaying a short run says, in both orders.
fn truth(
    workload: &Workload,
    variant: Variant,
    sunder: &Path,
    folder: &Path,
) -> Result<Vec<Truth>> {
    let program = workload.build(variant, &default_out_dir())?;
    let own = folder.join(format!("{}-{}", workload.name, variant.name()));
    let trace = own.with_extension("trace");
    let size = (workload.size / PART).max(1);
    succeed(
        Command::new(sunder)
            .args(["trace", "--via", "emulated", "-o"])
            .arg(&trace)
            .arg("--")
            .arg(&program)
            .args([workload.threads.to_string(), size.to_string()]),
    )
    .context("the emulator is needed: Debian's package qemu-user")?;
    let replayed = |order: &str| {
        let result = own.with_extension(order).with_extension("json");
        let out = ["--quiet", "--format", "json", "-o"];
        let command = &mut Command::new(sunder);
        let command = command.args(["simulate", "--order", order]).args(out);
        succeed(command.arg(&result).arg(&trace))?;
        let found = Findings::open(&result)?;
        std::fs::remove_file(result)?;
        anyhow::Ok(subjects(&found, DEFAULT_THRESHOLD_PERCENT))
    };
    let (recorded, parallel) = (replayed("recorded")?, replayed("parallel")?);
    std::fs::remove_file(trace)?;
    Ok(truths(&recorded, &parallel))
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

fn row(
    workload: &Workload,
    variant: Variant,
    run: u32,
    found: &Match,
    verdict: &Verdict,
) -> Vec<String> {
    let truth = found.truth.as_ref();
    let mut row = vec![
        workload.name.clone(),
        variant.name().to_owned(),
        run.to_string(),
        found.outcome.words().to_owned(),
    ];
    for subject in [
        truth.map(|t| &t.recorded),
        truth.map(|t| &t.parallel),
        found.detected.as_ref(),
    ] {
        row.push(subject.map_or("", |s| kind(s.sharing)).to_owned());
        row.push(subject.map_or(String::new(), |s| format!("{:.2}", s.cost)));
    }
    let reasons: Vec<String> = verdict.reasons.iter().map(Reason::to_string).collect();
    row.push(match verdict.answer {
        Answer::Found => "found".to_owned(),
        Answer::None => "none".to_owned(),
        Answer::Inconclusive => format!("\"inconclusive: {}\"", reasons.join("; ")),
    });
    let name = found.name();
    row.push(format!("\"{}\"", name.replace('"', "'")));
    row
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
    /// How many were missed in a run whose verdict was that it does not know.
    not_known: u32,
    /// For each finding in both, its kind in the truth and in the detector's result.
    kinds: BTreeMap<(Sharing, Sharing), u32>,
    /// Lines of the table of what is not found in all three, with their counts.
    differences: BTreeMap<String, u32>,
}

impl Tally {
    fn add(
        &mut self,
        workload: &Workload,
        variant: Variant,
        found: &Match,
        verdict: &Verdict,
    ) -> Result<()> {
        if matches!(found.outcome, Outcome::Missed(_)) && verdict.answer == Answer::Inconclusive {
            self.not_known += 1;
        }
        *self.outcomes.entry(found.outcome).or_default() += 1;
        let (truth, detected) = (found.truth.as_ref(), found.detected.as_ref());
        if found.outcome == Outcome::Found {
            let truth = truth.context("found in the truth")?.recorded.sharing;
            let detected = detected.context("found by the detector")?.sharing;
            *self.kinds.entry((truth, detected)).or_default() += 1;
            return Ok(());
        }
        let of = |s: Option<&Subject>| s.map_or("-", |s| kind(s.sharing));
        let line = format!(
            "{} | {} | {} | {} | {} | {} | {}",
            workload.name,
            variant.name(),
            found.outcome.words(),
            found.name(),
            of(truth.map(|t| &t.recorded)),
            of(truth.map(|t| &t.parallel)),
            of(detected),
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
        let of_one = self.count(|o| *o == Outcome::FoundOfOneOrder);
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
            "{} runs. Objects that are significant in both orders of the trace and detected: {found}; \
             in both orders and not detected: {missed}; in one order and detected: {of_one}; \
             detected only: {alarms}.\n\n\
             - recall: {}; of {missed} missed, {} in runs that said that they do not know\n\
             - precision: {} ({} if what is falsely shared in the trace below the threshold counts as \
             right)\n- the same kind of sharing as in the recorded order, of what \
             was found: {}\n",
            self.runs,
            percent(found, found + missed),
            self.not_known,
            percent(found + of_one, found + of_one + alarms),
            percent(found + of_one + cheap, found + of_one + alarms),
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
        text += "\nWhat differs:\n\n| workload | variant | outcome | object | recorded | in step | \
                 detected | runs |\n|---|---|---|---|---|---|---|---|\n";
        for (line, count) in &self.differences {
            text += &format!("| {line} | {count} |\n");
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
            Some(Subject {
                keys: ["global x".to_owned()].into(),
                sharing,
                standing: sunder_findings::Standing::Significant,
                cost: 50.0,
            })
        };
        let both = |recorded: Option<Subject>| {
            recorded.map(|recorded| Truth {
                parallel: recorded.clone(),
                recorded,
            })
        };
        let mut add = |outcome, truth, detected| {
            let found = Match {
                outcome,
                truth: both(truth),
                detected,
            };
            let verdict = Verdict {
                answer: Answer::Inconclusive,
                reasons: Vec::new(),
            };
            tally
                .add(workload, Variant::Shared, &found, &verdict)
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
        add(Outcome::FoundOfOneOrder, subject(fs), subject(fs));
        add(Outcome::LeftOutOfOneOrder, subject(fs), None);
        let text = tally.summary();
        let recall = "recall: 75.0 % (3 of 4); of 1 missed, 1 in runs";
        assert!(text.contains(recall), "{text}");
        assert!(
            text.contains("precision: 66.7 % (4 of 6) (83.3 % (5 of 6) if"),
            "{text}"
        );
        assert!(
            text.contains("of what was found: 66.7 % (2 of 3)"),
            "{text}"
        );
        assert!(text.contains("| false | mixed | 1 |"), "{text}");
    }
}
