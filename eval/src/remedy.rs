//! `repair`: every workload as it is, fixed by hand, and with what Sunder does about it
//! while it runs; and the fixed ones under the same command, which must not notice.

use crate::measure::{Measurement, median, quantile, run as measure};
use crate::overhead::lengthen;
use crate::programs::Target;
use crate::record::Record;
use crate::{Options, programs};
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use sunder_workloads::{Variant, Workload};

const COLUMNS: [&str; 9] = [
    "workload",
    "run",
    "native_s",
    "by_hand_s",
    "remedy_s",
    "fixed_under_remedy_s",
    "native_kib",
    "remedy_kib",
    "said",
];

/// A workload's medians.
struct Row {
    name: String,
    native: f64,
    by_hand: f64,
    remedied: f64,
    /// The fixed variant under the command.
    unneeded: f64,
    more_kib: f64,
    said: String,
}

/// Runs the benchmark, with programs of about `seconds`.
///
/// # Errors
/// If a program fails, its output changes, or the record can't be written.
pub fn run(options: &Options, seconds: f64) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        "repair",
        "Workloads with false sharing as they are, fixed by hand, and under the command, in \
         turns; and the fixed ones under the command.",
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

/// Calls `act` with every workload that has both variants, as it is and fixed by hand,
/// both made as much longer as the first takes to work for about `seconds`.
///
/// # Errors
/// If a program does not build or can't be measured, or `act` fails.
pub fn each_pair<R>(
    options: &Options,
    seconds: f64,
    mut act: impl FnMut(&Workload, [&Target; 2]) -> Result<R>,
) -> Result<Vec<R>> {
    // How long they work is told by `seconds`.
    let all = programs::workloads(&Options {
        scale: 1,
        ..options.clone()
    })?;
    let mut rows = Vec::new();
    for (workload, variant, shared) in &all {
        let fixed = all
            .iter()
            .find(|(w, v, _)| w.name == workload.name && *v == Variant::Fixed);
        let (Variant::Shared, Some((_, _, fixed))) = (variant, fixed) else {
            continue;
        };
        let (mut shared, mut fixed) = (shared.clone(), fixed.clone());
        let times = lengthen(&mut shared, seconds)?;
        fixed.longer(times)?;
        rows.push(act(workload, [&shared, &fixed])?);
    }
    Ok(rows)
}

fn compare(
    sunder: &Path,
    options: &Options,
    workload: &Workload,
    [shared, fixed]: [&Target; 2],
    record: &mut Record,
) -> Result<Row> {
    let said = said(&mut shared.under(sunder, "repair", &[]))?;
    let quiet = ["--quiet"];
    let mut seen: [Vec<Measurement>; 4] = Default::default();
    for i in 0..options.repetitions {
        let runs = [
            measure(&mut shared.native())?,
            measure(&mut fixed.native())?,
            measure(&mut shared.under(sunder, "repair", &quiet))?,
            measure(&mut fixed.under(sunder, "repair", &quiet))?,
        ];
        let alike = |a: usize, b: usize| {
            let same = !workload.deterministic || runs[a].stdout == runs[b].stdout;
            same && runs[a].status == runs[b].status
        };
        ensure!(
            alike(0, 2) && alike(1, 3),
            "{} does not do under the command what it does without",
            workload.name
        );
        let wall = |run: &Measurement| format!("{:.4}", run.wall);
        record.row(&[
            workload.name.clone(),
            i.to_string(),
            wall(&runs[0]),
            wall(&runs[1]),
            wall(&runs[2]),
            wall(&runs[3]),
            runs[0].peak_kib.to_string(),
            runs[2].peak_kib.to_string(),
            format!("\"{}\"", said.replace('"', "'")),
        ])?;
        for (all, run) in seen.iter_mut().zip(runs) {
            all.push(run);
        }
    }
    let wall = |n: usize| median(&seen[n].iter().map(|m| m.wall).collect::<Vec<_>>());
    let kib = |n: usize| {
        median(
            &seen[n]
                .iter()
                .map(|m| m.peak_kib as f64)
                .collect::<Vec<_>>(),
        )
    };
    Ok(Row {
        name: workload.name.clone(),
        native: wall(0),
        by_hand: wall(1),
        remedied: wall(2),
        unneeded: wall(3) / wall(1),
        more_kib: kib(2) - kib(0),
        said,
    })
}

/// The first line of what it says at the end, without our name before it.
pub fn said(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    let line = text.lines().find(|line| line.starts_with("sunder: "));
    Ok(line
        .unwrap_or_default()
        .trim_start_matches("sunder: ")
        .replace('|', "/"))
}

fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let done = |row: &&Row| row.said.starts_with("moved");
    let speed: Vec<f64> = rows
        .iter()
        .filter(done)
        .map(|r| r.by_hand / r.remedied)
        .collect();
    let gain: Vec<f64> = rows
        .iter()
        .filter(done)
        .map(|r| r.native / r.remedied)
        .collect();
    let unneeded: Vec<f64> = rows.iter().map(|r| r.unneeded).collect();
    let _ = writeln!(
        text,
        "- something was done in {} of {} programs: {:.2} times native speed in the median, \
         {:.2} of the speed of the one that was fixed by hand\n\
         - the fixed ones under the command: {:.3} of their native time in the median, {:.3} at \
         worst\n",
        speed.len(),
        rows.len(),
        median(&gain),
        median(&speed),
        median(&unneeded),
        quantile(&unneeded, 1.0),
    );
    text.push_str(
        "| workload | native s | by hand s | remedy s | speed-up | of by hand | fixed under it | \
         KiB more | said |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.3} | {:.0} | {} |",
            row.name,
            row.native,
            row.by_hand,
            row.remedied,
            row.native / row.remedied,
            row.by_hand / row.remedied,
            row.unneeded,
            row.more_kib,
            row.said
        );
    }
    text
}
