//! `repair-callers`: what a move costs threads that call the same code with other data, as in Plastic's
//! section 6.1. A third thread calls the function of two that contend. Its CPU time for a call is
//! compared before and after the move, and with a run in which the two do not share a line: copies of
//! code are for threads that use what has moved, so it should stay in the original code.

use crate::measure::{median, quantile};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::path::Path;
use std::process::Command;
use sunder_findings::Findings;

/// Calls between two time stamps of the third thread: `CHUNK` in the program.
const CHUNK: f64 = 262_144.0;
/// Calls of each of the two others at scale 1.
const CALLS: u64 = 150_000_000;
/// After a move threads find their copies of code; chunks of this much time, in seconds, are left out.
const SETTLES: f64 = 0.1;

/// One run: for every chunk of the third thread the moment at which it ended, in seconds, and the
/// nanoseconds of CPU time of a call.
struct Run {
    chunks: Vec<(f64, f64)>,
    output: String,
    /// From when to when bytes were away, in seconds.
    away: Option<(f64, f64)>,
}

impl Run {
    /// The median time of a call in chunks that ended within this span; `None` if there are none.
    fn call(&self, from: f64, to: f64) -> Option<f64> {
        let within = self.chunks.iter().filter(|c| (from..to).contains(&c.0));
        let all: Vec<f64> = within.map(|chunk| chunk.1).collect();
        (!all.is_empty()).then(|| median(&all))
    }
}

/// Runs the benchmark.
///
/// # Errors
/// If a program fails, its output changes, or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let program = programs::built("callers", "-O1")?;
    let calls = CALLS * options.scale;
    let mut record = Record::new(
        "repair-callers",
        "A function that two threads call with counters on one line, and a third with counters of its \
         own: CPU time of a call of the third, under `sunder repair` before and after the counters of \
         the two have moved, natively, and natively with the counters of the two apart (Plastic, \
         section 6.1).",
        options.repetitions,
        &["run", "native_ns", "fixed_ns", "before_ns", "after_ns"],
    )?;
    let (mut of_before, mut of_fixed, mut unmoved) = (Vec::new(), Vec::new(), 0);
    for i in 0..options.repetitions {
        let native = once(None, &program, calls, "shared")?;
        let fixed = once(None, &program, calls, "fixed")?;
        let repaired = once(Some(&sunder), &program, calls, "shared")?;
        ensure!(
            native.output == repaired.output,
            "the program's output changed"
        );
        let all = |run: &Run| run.call(0.0, f64::MAX).context("it was too short");
        let (native, fixed) = (all(&native)?, all(&fixed)?);
        let moved = repaired.away.and_then(|(from, to)| {
            let before = repaired.call(0.0, from)?;
            Some((before, repaired.call(from + SETTLES, to)?))
        });
        let told = |ns: Option<f64>| ns.map_or_else(String::new, |ns| format!("{ns:.4}"));
        record.row(&[
            i.to_string(),
            told(Some(native)),
            told(Some(fixed)),
            told(moved.map(|m| m.0)),
            told(moved.map(|m| m.1)),
        ])?;
        match moved {
            Some((before, after)) => {
                of_before.push(after / before);
                of_fixed.push(after / fixed);
            }
            None => unmoved += 1,
        }
    }
    let row = |name: &str, all: &[f64]| {
        format!(
            "| {name} | {:.3} | {:.3} | {:.3} |\n",
            median(all),
            quantile(all, 0.25),
            quantile(all, 0.75)
        )
    };
    let more = match unmoved {
        0 => String::new(),
        runs => format!("; in {runs} more nothing was moved"),
    };
    record.finish(&format!(
        "CPU time of a call of the third thread after the move (Plastic: under 1 % more), in {} runs{more}.\n\n\
         | relative to | median | lower quarter | upper quarter |\n|---|---|---|---|\n{}{}",
        of_before.len(),
        row("the same thread before the move", &of_before),
        row("a native run with the counters of the two apart", &of_fixed),
    ))
}

fn once(sunder: Option<&Path>, program: &Path, calls: u64, kind: &str) -> Result<Run> {
    let report = format!("sunder-eval-callers-{}.json", std::process::id());
    let report = std::env::temp_dir().join(report);
    let mut command = match sunder {
        Some(sunder) => {
            let mut command = Command::new(sunder);
            command.args(["repair", "--quiet", "--report"]);
            command.arg(&report).arg("--").arg(program);
            command
        }
        None => Command::new(program),
    };
    let ended = command.args([&calls.to_string(), kind]).output()?;
    ensure!(
        ended.status.success(),
        "the program ended with {}",
        ended.status
    );
    let chunk = |line: &str| -> Option<(f64, f64)> {
        let (when, took) = line.split_once(' ')?;
        let (when, took): (f64, f64) = (when.parse().ok()?, took.parse().ok()?);
        Some((when / 1e9, took / CHUNK))
    };
    let text = String::from_utf8_lossy(&ended.stderr);
    let chunks: Vec<_> = text.lines().filter_map(chunk).collect();
    let away = match sunder {
        Some(_) => away(&Findings::open(&report)?),
        None => None,
    };
    if sunder.is_some() {
        std::fs::remove_file(&report)?;
    }
    Ok(Run {
        chunks,
        output: String::from_utf8_lossy(&ended.stdout).into_owned(),
        away,
    })
}

/// From when to when the last bytes that moved were away.
fn away(result: &Findings) -> Option<(f64, f64)> {
    let moved = result.repair.iter().flat_map(|repair| &repair.moved);
    let moves = moved.flat_map(|moved| &moved.moves);
    let last = moves.last()?;
    let back = last.rolled_back.as_ref();
    Some((
        last.at_seconds,
        back.map_or(f64::MAX, |back| back.at_seconds),
    ))
}
