//! `isolate-sampling`: SHERIFF's Figure 9 and Table 5 for the observer that compares pages, with
//! SHERIFF's own intervals.

use crate::measure::{median, run as measure};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use sunder_findings::{Findings, Sharing};

/// The paper's intervals in ms, each with its number of commits per second.
const INTERVALS: [(&str, &str); 3] = [("2", "500"), ("10", "100"), ("50", "20")];
/// Index of the interval that Figure 9 compares the others with.
const USUAL: usize = 1;

/// The findings of one run, whatever they cost.
#[derive(Clone, Copy)]
struct Found {
    objects: f64,
    /// How often two consecutive commits to a line of theirs were by two threads.
    interleaved: f64,
}

/// Runs the benchmark.
///
/// # Errors
/// If a program fails, its output changes, or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        "isolate-sampling",
        "Wall time under `sunder detect --observer isolate` with commits every 2, 10 and 50 ms: \
         relative to native, and to that with 10 ms (SHERIFF Figure 9); and what was found, \
         however little it costs: falsely shared objects and the interleaved writes that commits \
         showed on their lines (Table 5).",
        options.repetitions,
        &[
            "workload",
            "ms",
            "run",
            "native_s",
            "detect_s",
            "objects",
            "interleaved_writes",
        ],
    )?;
    let mut table = String::from(
        "| workload | 2 ms: to native | to 10 ms | objects | interleaved | 10 ms: to native | objects | \
         interleaved | 50 ms: to native | to 10 ms | objects | interleaved |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut related = [const { Vec::new() }; INTERVALS.len()];
    let mut ratios = [const { Vec::new() }; INTERVALS.len()];
    for (workload, variant, target) in programs::workloads(options)? {
        if variant.name() != "shared" {
            continue;
        }
        let mut native = Vec::new();
        let mut walls = [const { Vec::new() }; INTERVALS.len()];
        let mut found = [const { Vec::new() }; INTERVALS.len()];
        for i in 0..options.repetitions {
            let alone = measure(&mut target.native())?;
            native.push(alone.wall);
            for (k, (ms, hz)) in INTERVALS.iter().enumerate() {
                let (wall, findings, stdout) = observe(&target, &sunder, hz)?;
                ensure!(
                    !workload.deterministic || stdout == alone.stdout,
                    "{}: another output",
                    workload.name
                );
                let seen = count(&findings);
                record.row(&[
                    workload.name.clone(),
                    (*ms).into(),
                    i.to_string(),
                    format!("{:.4}", alone.wall),
                    format!("{wall:.4}"),
                    seen.objects.to_string(),
                    seen.interleaved.to_string(),
                ])?;
                walls[k].push(wall);
                found[k].push(seen);
            }
        }
        let usual = median(&walls[USUAL]);
        write!(table, "| {} ", workload.name)?;
        for k in 0..INTERVALS.len() {
            let wall = median(&walls[k]);
            ratios[k].push(wall / median(&native));
            related[k].push(wall / usual);
            write!(table, "| {:.2} ", wall / median(&native))?;
            if k != USUAL {
                write!(table, "| {:.2} ", wall / usual)?;
            }
            let objects: Vec<f64> = found[k].iter().map(|f: &Found| f.objects).collect();
            let interleaved: Vec<f64> = found[k].iter().map(|f| f.interleaved).collect();
            write!(
                table,
                "| {:.0} | {:.0} ",
                median(&objects),
                median(&interleaved)
            )?;
        }
        writeln!(table, "|")?;
        println!("{}", workload.name);
    }
    let mut summary = String::new();
    for (k, (ms, _)) in INTERVALS.iter().enumerate() {
        writeln!(
            summary,
            "- {ms} ms: median {:.2} of native time, {:.2} of that with 10 ms",
            median(&ratios[k]),
            median(&related[k])
        )?;
    }
    record.finish(&format!("{summary}\n{table}"))
}

/// One run: seconds, the result, and the program's output.
fn observe(
    target: &programs::Target,
    sunder: &std::path::Path,
    hz: &str,
) -> Result<(f64, Findings, Vec<u8>)> {
    let file = std::env::temp_dir().join(format!("sunder-eval-{}.json", std::process::id()));
    let path = file.to_string_lossy().into_owned();
    let how = [
        "--observer",
        "isolate",
        "--frequency",
        hz,
        "--quiet",
        "-o",
        &path,
    ];
    let seen = measure(&mut target.detected(sunder, &[&how[..], &["--format", "json"]].concat()))?;
    ensure!(
        seen.status == 0,
        "{} ended with wait status {}",
        target.name,
        seen.status
    );
    let findings = Findings::open(&file)?;
    std::fs::remove_file(&file)?;
    Ok((seen.wall, findings, seen.stdout))
}

/// SHERIFF's Table 5 leaves the significance filter off.
fn count(findings: &Findings) -> Found {
    let all = findings.findings.iter();
    let falsely: Vec<_> = all
        .filter(|f| !f.latent && f.sharing != Sharing::True)
        .collect();
    let writes = falsely.iter().filter_map(|f| f.interleaved_writes);
    Found {
        objects: falsely.len() as f64,
        interleaved: writes.sum::<u64>() as f64,
    }
}
