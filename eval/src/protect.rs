//! `protect`: SHERIFF's Table 3, Table 4 and Figures 7 and 8 for our workloads. Every workload runs
//! as it is, fixed by hand, under `protect` without a saved result and with one, and under `detect
//! --observer isolate`. The fixed variant also runs under `protect`, which must not slow it down.
//! Runs take turns.

use crate::measure::{Measurement, median, quantile, run as measure};
use crate::options::Options;
use crate::programs;
use crate::programs::Target;
use crate::record::Record;
use crate::remedy::{each_pair, said};
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use sunder_workloads::Workload;

const COLUMNS: [&str; 13] = [
    "workload",
    "run",
    "native_s",
    "by_hand_s",
    "live_s",
    "saved_s",
    "isolate_observer_s",
    "fixed_under_live_s",
    "native_kib",
    "live_kib",
    "saved_kib",
    "said_live",
    "said_saved",
];

/// The medians of a workload.
struct Row {
    name: String,
    native: f64,
    by_hand: f64,
    live: f64,
    saved: f64,
    detect: f64,
    /// Time of the fixed variant under `protect`, as a ratio to its native time.
    unneeded: f64,
    more_kib: f64,
    /// The greatest number of interleavings of the costliest finding.
    interleavings: f64,
    said: String,
    said_saved: String,
}

impl Row {
    fn was_isolated(&self) -> bool {
        self.said.starts_with("isolated")
    }
}

/// Runs the benchmark, with programs of about `seconds`.
///
/// # Errors
/// If a program fails, its output changes, or the record can't be written.
pub fn run(options: &Options, seconds: f64) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        "protect",
        "Workloads as they are, fixed by hand, under `sunder protect` with nothing named beforehand \
         (live) and with what `detect` saved (saved), and under `sunder detect --observer isolate`; \
         and the fixed ones under `sunder protect`. In turns. After SHERIFF's Tables 3 and 4 and \
         Figures 7 and 8.",
        options.repetitions,
        &COLUMNS,
    )?;
    let rows = each_pair(options, seconds, |workload, pair| {
        let row = compare(&sunder, options, workload, pair, &mut record)?;
        println!("{}: {}", row.name, row.said);
        Ok(row)
    })?;
    record.finish(&summary(&rows))
}

fn compare(
    sunder: &Path,
    options: &Options,
    workload: &Workload,
    [shared, fixed]: [&Target; 2],
    record: &mut Record,
) -> Result<Row> {
    let folder = std::env::temp_dir().join(format!("sunder-eval-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let result = folder.join("detected.json").display().to_string();
    measure(&mut shared.under(sunder, "detect", &["--quiet", "-o", &result]))?;
    let detected = sunder_findings::Findings::open(Path::new(&result))?;
    let dearest = detected.findings.iter().find(|f| !f.latent);
    let interleavings = dearest.map_or(0.0, |f| f.interleavings_per_second * detected.run.seconds);
    let said_live = said(&mut shared.under(sunder, "protect", &[]))?;
    let said_saved = said(&mut shared.under(sunder, "protect", &["--from", &result]))?;
    let mut seen: [Vec<Measurement>; 6] = Default::default();
    for i in 0..options.repetitions {
        let runs = [
            measure(&mut shared.native())?,
            measure(&mut fixed.native())?,
            measure(&mut shared.under(sunder, "protect", &["--quiet"]))?,
            measure(&mut shared.under(sunder, "protect", &["--quiet", "--from", &result]))?,
            measure(&mut shared.under(sunder, "detect", &["--quiet", "--observer", "isolate"]))?,
            measure(&mut fixed.under(sunder, "protect", &["--quiet"]))?,
        ];
        for (n, native) in [(2, 0), (3, 0), (4, 0), (5, 1)] {
            let same = !workload.deterministic || runs[n].stdout == runs[native].stdout;
            ensure!(
                same && runs[n].status == runs[native].status,
                "{} does not do under {} what it does without",
                workload.name,
                COLUMNS[n + 2],
            );
        }
        let mut fields = vec![workload.name.clone(), i.to_string()];
        fields.extend(runs.iter().map(|run| format!("{:.4}", run.wall)));
        fields.extend([0, 2, 3].map(|n: usize| runs[n].peak_kib.to_string()));
        let quoted = |text: &str| format!("\"{}\"", text.replace('"', "'"));
        fields.extend([quoted(&said_live), quoted(&said_saved)]);
        record.row(&fields)?;
        for (all, run) in seen.iter_mut().zip(runs) {
            all.push(run);
        }
    }
    std::fs::remove_dir_all(&folder)?;
    let of = |n: usize, what: fn(&Measurement) -> f64| {
        median(&seen[n].iter().map(what).collect::<Vec<_>>())
    };
    let wall = |n| of(n, |m| m.wall);
    let kib = |n| of(n, |m| m.peak_kib as f64);
    Ok(Row {
        name: workload.name.clone(),
        native: wall(0),
        by_hand: wall(1),
        live: wall(2),
        saved: wall(3),
        detect: wall(4),
        unneeded: wall(5) / wall(1),
        more_kib: kib(2) - kib(0),
        interleavings,
        said: said_live,
        said_saved,
    })
}

fn geometric_mean(ratios: &[f64]) -> f64 {
    let logs: f64 = ratios.iter().map(|r| r.ln()).sum();
    (logs / ratios.len().max(1) as f64).exp()
}

fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let isolated: Vec<&Row> = rows.iter().filter(|r| r.was_isolated()).collect();
    let left: Vec<f64> = rows
        .iter()
        .filter(|r| !r.was_isolated())
        .map(|r| r.live / r.native)
        .chain(rows.iter().map(|r| r.unneeded))
        .collect();
    let of = |all: &[&Row], what: fn(&Row) -> f64| {
        median(&all.iter().map(|r| what(r)).collect::<Vec<_>>())
    };
    let all: Vec<&Row> = rows.iter().collect();
    let mean = |what: fn(&Row) -> f64| geometric_mean(&rows.iter().map(what).collect::<Vec<_>>());
    if !isolated.is_empty() {
        let _ = writeln!(
            text,
            "- isolated without a saved result in {} of {} programs: {:.2} of native time in the median, \
             {:.2} of the speed of the one that was fixed by hand; with one {:.2} and {:.2}",
            isolated.len(),
            rows.len(),
            of(&isolated, |r| r.live / r.native),
            of(&isolated, |r| r.by_hand / r.live),
            of(&isolated, |r| r.saved / r.native),
            of(&isolated, |r| r.by_hand / r.saved),
        );
    }
    if !left.is_empty() {
        let _ = writeln!(
            text,
            "- where nothing was isolated (the fixed ones with them): {:.3} of native time in the median, \
             {:.3} at worst",
            median(&left),
            quantile(&left, 1.0),
        );
    }
    if !all.is_empty() {
        let _ = writeln!(
            text,
            "- memory beyond native: {:.0} KiB in the median\n",
            of(&all, |r| r.more_kib)
        );
    }
    text.push_str(
        "## Table 3: fixing by hand\n\n| workload | native s | by hand s | speed-up | interleaved \
         accesses at most, millions |\n|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.1} |",
            row.name,
            row.native,
            row.by_hand,
            row.native / row.by_hand,
            row.interleavings / 1e6,
        );
    }
    text.push_str(
        "\n## Table 4, Figures 7 and 8: times, native is 1\n\n| workload | detect by isolation | protect | \
         protect with a result | by hand | fixed under protect | KiB more | said | said with a \
         result |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} | {:.0} | {} | {} |",
            row.name,
            row.detect / row.native,
            row.live / row.native,
            row.saved / row.native,
            row.by_hand / row.native,
            row.unneeded,
            row.more_kib,
            row.said,
            row.said_saved,
        );
    }
    let _ = writeln!(
        text,
        "| geometric mean | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} | | | |",
        mean(|r| r.detect / r.native),
        mean(|r| r.live / r.native),
        mean(|r| r.saved / r.native),
        mean(|r| r.by_hand / r.native),
        mean(|r| r.unneeded),
    );
    text
}
