//! `cores`: what `detect` says on two CPUs of a fix's gain on 16, beside what the fix gains on that many.
//! `detect` and two threads are held on the first two CPUs; then the program runs natively on all of
//! them with a thread on each, as it is and fixed by hand.

use crate::measure::{median, quantile, run as measure};
use crate::options::{Options, Set};
use crate::programs::{self, Target};
use crate::record::Record;
use crate::remedy::each_pair;
use anyhow::{Context, Result, ensure};
use std::ffi::OsString;
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use sunder_findings::{Finding, Findings, OnMoreCpus};

const COLUMNS: [&str; 9] = [
    "program",
    "two_shared_s",
    "two_fixed_s",
    "all_shared_s",
    "all_fixed_s",
    "gain_percent",
    "said",
    "low",
    "high",
];

/// A program is one that a fix helps if it is this many times as fast on all CPUs when it is fixed.
const WORTH: f64 = 1.15;

/// The CPUs on which `detect` runs.
const TWO: &str = "0,1";

struct Row {
    name: String,
    /// Seconds of the variants on two CPUs, and on all.
    two: [f64; 2],
    all: [f64; 2],
    gain: Option<f64>,
    said: Option<OnMoreCpus>,
}

impl Row {
    /// How many times as fast the fixed variant is.
    fn truth(&self) -> f64 {
        self.all[0] / self.all[1]
    }
}

/// Runs the benchmark, with programs of about `seconds` on all CPUs.
///
/// # Errors
/// If this machine has fewer CPUs than the model is about, a program fails, or the record can't be
/// written.
pub fn run(options: &Options, seconds: f64) -> Result<()> {
    let cpus = std::thread::available_parallelism()?.get();
    let cpus = u32::try_from(cpus)?;
    ensure!(
        cpus >= sunder_plan::cores::CPUS,
        "this needs a machine of {} CPUs",
        sunder_plan::cores::CPUS
    );
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        match options.set {
            Set::Workloads => "cores",
            Set::Pairs => "cores-pairs",
        },
        "How many times as fast a fix makes a program on all CPUs of this machine with a thread on \
         each, and what `sunder detect` says of that while it and two threads have two of the CPUs. \
         `two` and `all` are medians of native runs with two threads on two CPUs and with a thread on \
         each of all.",
        options.repetitions,
        &COLUMNS,
    )?;
    let options = Options {
        threads: vec![sunder_plan::cores::CPUS],
        ..options.clone()
    };
    let rows = each_pair(&options, seconds, |workload, pair| {
        let row = one(&sunder, &options, &workload.name, pair)?;
        let number = |number: f64| format!("{number:.3}");
        let maybe = |value: Option<f64>| value.map_or_else(String::new, number);
        record.row(&[
            row.name.clone(),
            number(row.two[0]),
            number(row.two[1]),
            number(row.all[0]),
            number(row.all[1]),
            maybe(row.gain),
            maybe(row.said.map(|said| said.times_as_fast)),
            maybe(row.said.map(|said| said.low)),
            maybe(row.said.map(|said| said.high)),
        ])?;
        let said = row
            .said
            .map_or("nothing".into(), |said| number(said.times_as_fast));
        println!(
            "{}: {:.1} times as fast, said {said}",
            row.name,
            row.truth()
        );
        Ok(row)
    })?;
    record.finish(&summary(&rows))
}

fn one(sunder: &Path, options: &Options, name: &str, pair: [&Target; 2]) -> Result<Row> {
    let seconds = |target: &Target, words: &[OsString]| -> Result<f64> {
        let times: Result<Vec<f64>> = (0..options.repetitions)
            .map(|_| Ok(measure(&mut target.after(words))?.wall))
            .collect();
        Ok(median(&times?))
    };
    let on_two = ["taskset".into(), "-c".into(), TWO.into()];
    let [shared, fixed] = pair;
    let two = [shared.with_threads(2), fixed.with_threads(2)];
    let found = detected(sunder, &two[0], &on_two)?;
    let significant = |finding: &&Finding| !finding.latent && finding.gain_percent.is_some();
    let first = found.findings.iter().find(significant);
    Ok(Row {
        name: name.to_owned(),
        two: [seconds(&two[0], &on_two)?, seconds(&two[1], &on_two)?],
        all: [seconds(shared, &[])?, seconds(fixed, &[])?],
        gain: first.and_then(|f| f.gain_percent).map(|gain| gain.likely),
        said: first.and_then(|finding| finding.on_more_cpus),
    })
}

/// What `detect` finds in the program on these CPUs.
fn detected(sunder: &Path, target: &Target, words: &[OsString]) -> Result<Findings> {
    let file = std::env::temp_dir().join(format!("sunder-eval-{}.json", std::process::id()));
    let mut before = words.to_vec();
    before.push(sunder.into());
    before.extend(["detect", "--quiet", "--format", "json", "-o"].map(OsString::from));
    before.extend([file.clone().into(), "--".into()]);
    let mut command: Command = target.after(&before);
    let run = measure(&mut command)?;
    ensure!(run.status == 0, "{} failed under detect", target.name);
    let found = Findings::open(&file).context("detect wrote no result")?;
    std::fs::remove_file(&file)?;
    Ok(found)
}

fn summary(rows: &[Row]) -> String {
    let worth: Vec<&Row> = rows.iter().filter(|row| row.truth() >= WORTH).collect();
    let told: Vec<(&Row, OnMoreCpus)> = worth
        .iter()
        .filter_map(|row| Some((*row, row.said?)))
        .collect();
    let off: Vec<f64> = told
        .iter()
        .map(|(row, said)| said.times_as_fast / row.truth())
        .collect();
    let held = told
        .iter()
        .filter(|(row, said)| (said.low..=said.high).contains(&row.truth()));
    let mut text = format!(
        "{} of {} programs are at least {WORTH} times as fast on all CPUs when they are fixed. Of {} of \
         them `detect` told how many times, and its range held the truth in {}.",
        worth.len(),
        rows.len(),
        told.len(),
        held.count()
    );
    if !off.is_empty() {
        let at = |share: f64| quantile(&off, share);
        let _ = write!(
            text,
            " What it told is {:.2} of the truth in the median ({:.2} and {:.2} at the tenths, {:.2} to \
             {:.2} in all).",
            median(&off),
            at(0.1),
            at(0.9),
            at(0.0),
            at(1.0)
        );
    }
    text.push_str(
        "\n\n| program | two CPUs: shared s | fixed s | all CPUs: shared s | fixed s | times as fast | \
         said (range) |\n|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let said = row.said.map_or_else(String::new, |said| {
            format!(
                "{:.1} ({:.1}-{:.1})",
                said.times_as_fast, said.low, said.high
            )
        });
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.1} | {said} |",
            row.name,
            row.two[0],
            row.two[1],
            row.all[0],
            row.all[1],
            row.truth()
        );
    }
    text
}
