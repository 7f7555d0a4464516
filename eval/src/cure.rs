//! `cure`: every program as it is, fixed by hand, and under `repair`, `protect` and `cure`, without
//! a plan and with the one that an earlier run saved; under `protect --eager`, which is SHERIFF's own
//! way (its section 5); and the fixed variant under `cure`, which must not slow it down. Runs take
//! turns.

use crate::limited;
use crate::measure::{Measurement, median, quantile, run as measure};
use crate::options::{Options, Set};
use crate::programs;
use crate::programs::Target;
use crate::record::Record;
use crate::remedy::{each_pair, said};
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::Duration;
use sunder_workloads::Workload;

const COLUMNS: [&str; 11] = [
    "workload",
    "run",
    "native_s",
    "by_hand_s",
    "repair_s",
    "protect_s",
    "cure_s",
    "plan_s",
    "fixed_under_cure_s",
    "eager_s",
    "said",
];

/// A run under `--eager` may take this many times its native time, and [`MORE`] seconds.
const LONGEST: f64 = 10.0;
const MORE: f64 = 10.0;

/// A program is one that a fix helps if it is this many times as fast when it is fixed by hand.
const WORTH: f64 = 1.15;

/// The medians of a program, in seconds.
struct Row {
    name: String,
    native: f64,
    by_hand: f64,
    repair: f64,
    protect: f64,
    cure: f64,
    plan: f64,
    fixed_under_cure: f64,
    /// `None` if its output or its end was another one in any run.
    eager: Option<f64>,
    said: String,
}

impl Row {
    /// The seconds under each remedy, in the order of the summary.
    fn under(&self) -> [Option<f64>; 6] {
        let better = self.repair.min(self.protect);
        let safe = [self.repair, self.protect, better, self.cure, self.plan].map(Some);
        let [repair, protect, better, cure, plan] = safe;
        [repair, protect, better, cure, plan, self.eager]
    }
}

/// Runs the benchmark, with programs of about `seconds`.
///
/// # Errors
/// If a program fails, its output changes, or the record can't be written.
pub fn run(options: &Options, seconds: f64) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        match options.set {
            Set::Workloads => "cure",
            Set::Pairs => "cure-pairs",
        },
        "Programs with false sharing as they are, fixed by hand, and under `sunder repair`, `sunder \
         protect` and `sunder cure`, the last without and with a plan from an earlier run; under \
         `sunder protect --eager`; and the fixed ones under `sunder cure`. In turns.",
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
    let plan = folder.join("plan.json").display().to_string();
    let said = said(&mut shared.under(sunder, "cure", &["--save", &plan]))?;
    let mut seen: [Vec<Measurement>; 7] = Default::default();
    let (mut eager, mut is_kept) = (Vec::new(), true);
    for i in 0..options.repetitions {
        let runs = [
            measure(&mut shared.native())?,
            measure(&mut fixed.native())?,
            measure(&mut shared.under(sunder, "repair", &["--quiet"]))?,
            measure(&mut shared.under(sunder, "protect", &["--quiet"]))?,
            measure(&mut shared.under(sunder, "cure", &["--quiet"]))?,
            measure(&mut shared.under(sunder, "cure", &["--quiet", "--plan", &plan]))?,
            measure(&mut fixed.under(sunder, "cure", &["--quiet"]))?,
        ];
        // It must be asked for, since it can't be right for programs that publish data by plain stores.
        let limit = Duration::from_secs_f64(LONGEST * runs[0].wall + MORE);
        let mut command = shared.under(sunder, "protect", &["--quiet", "--eager"]);
        let eagerly = limited::run(&mut command, limit)?;
        is_kept &= eagerly.status.map(ExitStatusExt::into_raw) == Some(runs[0].status)
            && (!workload.deterministic || eagerly.stdout == runs[0].stdout);
        eager.push(eagerly.wall);
        for (n, native) in [(2, 0), (3, 0), (4, 0), (5, 0), (6, 1)] {
            let same = !workload.deterministic || runs[n].stdout == runs[native].stdout;
            ensure!(
                same && runs[n].status == runs[native].status,
                "{} does not do under the command of {} what it does without: {}, but {}",
                workload.name,
                COLUMNS[n + 2],
                runs[n].did(),
                runs[native].did(),
            );
        }
        let mut fields = vec![workload.name.clone(), i.to_string()];
        let walls = runs.iter().map(|run| run.wall).chain([eagerly.wall]);
        fields.extend(walls.map(|wall| format!("{wall:.4}")));
        fields.push(format!("\"{}\"", said.replace('"', "'")));
        record.row(&fields)?;
        for (all, run) in seen.iter_mut().zip(runs) {
            all.push(run);
        }
    }
    std::fs::remove_dir_all(&folder)?;
    let wall = |n: usize| median(&seen[n].iter().map(|m| m.wall).collect::<Vec<_>>());
    Ok(Row {
        name: workload.name.clone(),
        native: wall(0),
        by_hand: wall(1),
        repair: wall(2),
        protect: wall(3),
        cure: wall(4),
        plan: wall(5),
        fixed_under_cure: wall(6),
        eager: is_kept.then(|| median(&eager)),
        said,
    })
}

fn summary(rows: &[Row]) -> String {
    let mut text = String::new();
    let worth: Vec<&Row> = rows
        .iter()
        .filter(|row| row.native / row.by_hand >= WORTH)
        .collect();
    let _ = writeln!(
        text,
        "{} of {} programs are at least {WORTH} times as fast when they are fixed by hand. Of these:\n\n\
         | under | of the speed of the fixed one, median | lowest quarter | lowest | at least 0.8 | \
         times native speed, median | lowest |\n|---|---|---|---|---|---|---|",
        worth.len(),
        rows.len(),
    );
    let ways = [
        "repair",
        "protect",
        "the better of the two",
        "cure",
        "cure with a plan",
        "protect --eager",
    ];
    for (way, name) in ways.into_iter().enumerate() {
        let times = worth
            .iter()
            .filter_map(|row| Some((row, row.under()[way]?)));
        let of_fixed: Vec<f64> = times
            .clone()
            .map(|(row, time)| row.by_hand / time)
            .collect();
        let of_native: Vec<f64> = times.map(|(row, time)| row.native / time).collect();
        if of_fixed.is_empty() {
            continue;
        }
        let enough = of_fixed.iter().filter(|share| **share >= 0.8);
        let _ = writeln!(
            text,
            "| {name} | {:.2} | {:.2} | {:.2} | {} | {:.2} | {:.2} |",
            median(&of_fixed),
            quantile(&of_fixed, 0.25),
            quantile(&of_fixed, 0.0),
            enough.count(),
            median(&of_native),
            quantile(&of_native, 0.0),
        );
    }
    let others = rows.iter().filter(|row| row.eager.is_none());
    let others: Vec<_> = others.map(|row| row.name.as_str()).collect();
    if !others.is_empty() {
        let _ = writeln!(
            text,
            "\nUnder `protect --eager` {} had another output or another end, and are left out of its row: {}.",
            others.len(),
            others.join(", "),
        );
    }
    let unneeded: Vec<f64> = rows
        .iter()
        .map(|row| row.fixed_under_cure / row.by_hand)
        .collect();
    if !unneeded.is_empty() {
        let _ = writeln!(
            text,
            "\nThe fixed ones under cure: {:.3} of their native time in the median, {:.3} at worst.",
            median(&unneeded),
            quantile(&unneeded, 1.0),
        );
    }
    text.push_str(
        "\n| program | native s | by hand s | repair s | protect s | cure s | with a plan s | eager s | \
         cure, of by hand | fixed under cure | said |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {:.2} | {:.3} | {} |",
            row.name,
            row.native,
            row.by_hand,
            row.repair,
            row.protect,
            row.cure,
            row.plan,
            row.eager
                .map_or_else(|| "other output".into(), |time| format!("{time:.2}")),
            row.by_hand / row.cure,
            row.fixed_under_cure / row.by_hand,
            row.said,
        );
    }
    text
}
