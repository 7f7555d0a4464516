//! `repair`: every workload as it is, fixed by hand, and under `sunder repair`; and the fixed
//! variants under the same command, which must not slow them down.
//!
//! The speed of a program after its bytes were moved is computed from runs of two sizes: the
//! difference between their times, fixed by hand and under the command, is free of the start, of
//! the time before the move, and of the end. CPU times of the program's own threads are compared,
//! not wall times: bytes that were moved do not contend any more, so CPU time does not depend on
//! other programs. It says nothing about threads that wait for each other.

use crate::measure::{Measurement, median, quantile, run as measure};
use crate::options::Options;
use crate::overhead::lengthen;
use crate::programs::Target;
use crate::record::Record;
use crate::{inside, programs};
use anyhow::{Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use sunder_findings::{Findings, Repair};
use sunder_workloads::{Variant, Workload};

/// The factor of the larger size. The moment of the move differs by some tens of milliseconds from
/// run to run: this must be little in comparison with the difference of the times.
const LARGER: u64 = 5;

const COLUMNS: [&str; 15] = [
    "workload",
    "run",
    "native_s",
    "by_hand_s",
    "remedy_s",
    "fixed_under_remedy_s",
    "native_kib",
    "remedy_kib",
    "inside_kib",
    "by_hand_cpu_s",
    "remedy_cpu_s",
    "larger_by_hand_cpu_s",
    "larger_remedy_cpu_s",
    "code",
    "said",
];

/// How the code that uses moved bytes was copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// With other displacements alone, in loops.
    Invariant,
    /// With guards, or with checks of pointers from memory.
    Guarded,
    /// Instruction by instruction.
    Alone,
    /// Nothing was moved.
    None,
}

impl Kind {
    /// The kind of the copies, from the report.
    fn of(repair: Option<&Repair>) -> Self {
        let moved = || repair.into_iter().flat_map(|r| &r.moved);
        let code = || moved().flat_map(|m| &m.code);
        let loops = code().any(|code| code.loops > 0);
        // Time is spent in loops: code outside of them does not matter.
        let mut hot = code().filter(|code| code.loops > 0 || !loops);
        if moved().next().is_none() {
            Self::None
        } else if hot.any(|code| code.guarded > 0 || code.checked > 0) {
            Self::Guarded
        } else if loops {
            Self::Invariant
        } else {
            Self::Alone
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Invariant => "invariant",
            Self::Guarded => "guarded",
            Self::Alone => "alone",
            Self::None => "",
        }
    }
}

/// The medians of a workload.
struct Row {
    name: String,
    native: f64,
    by_hand: f64,
    remedied: f64,
    /// The fixed variant under the command.
    unneeded: f64,
    /// Additional memory, mostly of the tool's own process.
    more_kib: f64,
    /// Memory added to the program; `None` if nothing was moved, or if it ended too early.
    inside_kib: Option<u64>,
    /// The speed after the move, relative to the variant fixed by hand, in each repetition; `None`
    /// if nothing was moved.
    after: Vec<f64>,
    kind: Kind,
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
         turns; and the fixed ones under the command. The speed after the move is that of what \
         programs five times as large do more, in CPU time of their own.",
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

/// Calls `act` with every workload that has both variants, as it is and fixed by hand. Both are
/// made longer by the factor with which the first takes about `seconds`.
///
/// # Errors
/// If a program does not build or can't be measured, or `act` fails.
pub fn each_pair<R>(
    options: &Options,
    seconds: f64,
    mut act: impl FnMut(&Workload, [&Target; 2]) -> Result<R>,
) -> Result<Vec<R>> {
    // `seconds` decides their length, not the scale.
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
    let (said, kind, inside_kib) = repaired(sunder, shared)?;
    let mut larger = [shared.clone(), fixed.clone()];
    for program in &mut larger {
        program.longer(LARGER)?;
    }
    let mut after = Vec::new();
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
        let cpu = |seconds: f64| format!("{seconds:.4}");
        let [by_hand, remedied] = [runs[1].cpu, runs[2].children_cpu()];
        let mut more = [String::new(), String::new()];
        if kind != Kind::None {
            let more_by_hand = measure(&mut larger[1].native())?.cpu;
            let more_remedied = measure(&mut larger[0].under(sunder, "repair", &quiet))?;
            let more_remedied = more_remedied.children_cpu();
            after.extend(speed([by_hand, more_by_hand], [remedied, more_remedied]));
            more = [cpu(more_by_hand), cpu(more_remedied)];
        }
        let [larger_by_hand, larger_remedied] = more;
        record.row(&[
            workload.name.clone(),
            i.to_string(),
            wall(&runs[0]),
            wall(&runs[1]),
            wall(&runs[2]),
            wall(&runs[3]),
            runs[0].peak_kib.to_string(),
            runs[2].peak_kib.to_string(),
            inside_kib.map_or_else(String::new, |kib| kib.to_string()),
            cpu(by_hand),
            cpu(remedied),
            larger_by_hand,
            larger_remedied,
            kind.name().into(),
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
        inside_kib,
        after,
        kind,
        said,
    })
}

/// The speed of the second program relative to the first, from the CPU seconds of each for a size
/// and for a larger one; `None` if the larger one did not take longer.
fn speed(first: [f64; 2], second: [f64; 2]) -> Option<f64> {
    let more = |[small, large]: [f64; 2]| Some(large - small).filter(|m| *m > 0.0);
    Some(more(first)? / more(second)?)
}

/// The median of the repetitions, and their range.
fn spread(after: &[f64]) -> String {
    if after.is_empty() {
        return String::new();
    }
    let [low, high] = [0.0, 1.0].map(|share| quantile(after, share));
    format!("{:.2} ({low:.2} to {high:.2})", median(after))
}

/// The tool's last line, the kind of its copies, and the KiB that it added to the program.
fn repaired(sunder: &Path, program: &Target) -> Result<(String, Kind, Option<u64>)> {
    let name = format!("sunder-eval-repair-{}.json", std::process::id());
    let report = std::env::temp_dir().join(name);
    let path = report.display().to_string();
    let mut command = program.under(sunder, "repair", &["--report", &path]);
    let (said, inside) = inside::run(&mut command)?;
    let result = Findings::open(&report)?;
    std::fs::remove_file(&report)?;
    Ok((first_line(&said), Kind::of(result.repair.as_ref()), inside))
}

/// The first line of the tool's final message, without the tool's name before it.
pub fn said(command: &mut Command) -> Result<String> {
    let output = command.output()?;
    Ok(first_line(&String::from_utf8_lossy(&output.stderr)))
}

fn first_line(text: &str) -> String {
    let line = text.lines().find(|line| line.starts_with("sunder: "));
    line.unwrap_or_default()
        .trim_start_matches("sunder: ")
        .replace('|', "/")
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
         worst",
        speed.len(),
        rows.len(),
        median(&gain),
        median(&speed),
        median(&unneeded),
        quantile(&unneeded, 1.0),
    );
    for (kind, what) in [
        (Kind::Invariant, "other displacements were enough"),
        (Kind::Guarded, "it took guards or checks"),
    ] {
        let of_kind = rows
            .iter()
            .filter(|r| r.kind == kind && !r.after.is_empty());
        let after: Vec<f64> = of_kind.map(|r| median(&r.after)).collect();
        if !after.is_empty() {
            let _ = writeln!(
                text,
                "- after the move, where {what} ({} programs): {:.2} of the speed of the one that \
                 was fixed by hand in the median, {:.2} at worst",
                after.len(),
                median(&after),
                quantile(&after, 0.0),
            );
        }
    }
    let inside: Vec<f64> = rows
        .iter()
        .filter_map(|r| Some(r.inside_kib? as f64))
        .collect();
    if !inside.is_empty() {
        let _ = writeln!(
            text,
            "- memory that came into the program, where something was moved: {:.0} KiB in the \
             median, {:.0} at most",
            median(&inside),
            quantile(&inside, 1.0),
        );
    }
    text.push_str(
        "\n| workload | native s | by hand s | remedy s | speed-up | of by hand | after the move, of \
         by hand | code | fixed under it | KiB more | KiB in it | said |\n\
         |---|---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    for row in rows {
        let _ = writeln!(
            text,
            "| {} | {:.2} | {:.2} | {:.2} | {:.2} | {:.2} | {} | {} | {:.3} | {:.0} | {} | {} |",
            row.name,
            row.native,
            row.by_hand,
            row.remedied,
            row.native / row.remedied,
            row.by_hand / row.remedied,
            spread(&row.after),
            row.kind.name(),
            row.unneeded,
            row.more_kib,
            row.inside_kib
                .map_or_else(String::new, |kib| kib.to_string()),
            row.said
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::Moved;
    use sunder_findings::RewrittenCode;

    #[test]
    fn the_speed_after_the_move_ignores_earlier_intervals() {
        // Fixed by hand, the sizes differ by 1 s of work; for the other variant this takes 2 s,
        // after half a second of start and contention.
        assert_eq!(speed([1.0, 2.0], [2.5, 4.5]), Some(0.5));
        assert_eq!(speed([1.0, 2.0], [1.0, 0.9]), None);
    }

    #[test]
    fn speeds_are_shown_with_their_spread() {
        assert_eq!(spread(&[0.95, 1.01, 0.97]), "0.97 (0.95 to 1.01)");
        assert_eq!(spread(&[]), "");
    }

    #[test]
    fn code_with_checks_counts_as_guarded() {
        let kind = |loops, guarded, checked| {
            let code = RewrittenCode {
                copies: 1,
                loops,
                direct: 1,
                guarded,
                checked,
                ..RewrittenCode::default()
            };
            Kind::of(Some(&Repair {
                moved: vec![Moved {
                    code: vec![code],
                    ..Moved::default()
                }],
                ..Repair::default()
            }))
        };
        assert_eq!(kind(1, 0, 0), Kind::Invariant);
        assert_eq!(kind(1, 1, 0), Kind::Guarded);
        assert_eq!(kind(1, 0, 1), Kind::Guarded);
        assert_eq!(kind(0, 0, 0), Kind::Alone);
        assert_eq!(Kind::of(Some(&Repair::default())), Kind::None);
        assert_eq!(Kind::of(None), Kind::None);
    }
}
