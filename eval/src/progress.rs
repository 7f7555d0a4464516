//! `repair-progress`: Plastic's Figure 9 (a program's progress over time, with the moments of
//! detection and remapping, beside the one fixed by hand) and the thesis' Figure 5.4 (the same
//! program with more and more threads).

use crate::measure::median;
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use sunder_findings::{FaultsSoFar, Findings};

/// Points between two time stamps of a thread: `CHUNK` in the program.
const CHUNK: f64 = 262_144.0;
/// Points of a run at scale 1.
const POINTS: u64 = 100_000_000;
/// Time span of a row of the figure, in milliseconds.
const STEP: f64 = 50.0;

/// The way in which the program is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Native,
    /// By copies of code that compare each address with all moved ranges.
    Compared,
    Repaired,
    ByHand,
}

const MODES: [Mode; 4] = [Mode::Native, Mode::Compared, Mode::Repaired, Mode::ByHand];

/// The output and the report of one run.
struct Progress {
    /// Seconds since the program's start, ascending: at each of these a thread had finished a
    /// chunk.
    stamps: Vec<f64>,
    /// The printed sums, which are the same in every run.
    output: String,
    /// The report of `sunder repair`.
    result: Option<Findings>,
}

impl Progress {
    fn seconds(&self) -> f64 {
        self.stamps.last().copied().unwrap_or(0.0)
    }

    /// Millions of points per second between two moments.
    fn rate(&self, from: f64, to: f64) -> f64 {
        let within = |s: &&f64| (from..to).contains(*s);
        let chunks = self.stamps.iter().filter(within).count();
        chunks as f64 * CHUNK / (to - from) / 1e6
    }
}

/// Runs the benchmark with up to `threads` threads.
///
/// # Errors
/// If a program fails, its output changes, or the record can't be written.
pub fn run(options: &Options, threads: usize) -> Result<()> {
    let sunder = programs::sunder()?;
    let program = programs::built("progress", "-O1")?;
    let points = POINTS * options.scale;
    let mut record = Record::new(
        "repair-progress",
        "Linear regression as it is, under `sunder repair`, and fixed by hand: how far it was when \
         (Plastic, Figure 9), and with 1 to all threads (thesis, Figure 5.4).",
        options.repetitions,
        &["threads", "run", "way", "seconds"],
    )?;
    let mut summary = String::new();
    let mut speeds = String::from(
        "Not specialised are copies of code that compare each address with all moved ranges, as in \
         section 5.5 of the thesis; they are kept even if they do not help.\n\n\
         | threads | native s | not specialised s | repaired s | by hand s | of ideal: native | \
         not specialised | repaired | by hand |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let mut alone = None;
    for threads in 1..=threads {
        let mut seconds: [Vec<f64>; 4] = Default::default();
        for i in 0..options.repetitions {
            let mut output = None;
            for (way, all) in MODES.iter().zip(&mut seconds) {
                let run = once(&sunder, &program, *way, threads, points)?;
                let first = output.get_or_insert_with(|| run.output.clone());
                ensure!(*first == run.output, "the program's output changed");
                record.row(&[
                    threads.to_string(),
                    i.to_string(),
                    format!("{way:?}"),
                    format!("{:.4}", run.seconds()),
                ])?;
                all.push(run.seconds());
            }
        }
        let [native, compared, repaired, by_hand] = seconds.map(|all| median(&all));
        let one = *alone.get_or_insert(native);
        let ideal = |s: f64| one / threads as f64 / s;
        writeln!(
            speeds,
            "| {threads} | {native:.2} | {compared:.2} | {repaired:.2} | {by_hand:.2} | {:.2} | \
             {:.2} | {:.2} | {:.2} |",
            ideal(native),
            ideal(compared),
            ideal(repaired),
            ideal(by_hand)
        )?;
    }
    figure(&sunder, &program, threads, points, &mut summary)?;
    record.finish(&format!("{summary}\n{speeds}"))
}

/// One run of each way, in time spans of [`STEP`].
fn figure(
    sunder: &Path,
    program: &Path,
    threads: usize,
    points: u64,
    text: &mut String,
) -> Result<()> {
    let [native, repaired, by_hand] = [
        once(sunder, program, Mode::Native, threads, points)?,
        once(sunder, program, Mode::Repaired, threads, points)?,
        once(sunder, program, Mode::ByHand, threads, points)?,
    ];
    let result = repaired.result.as_ref().context("nothing was reported")?;
    if let Some(first) = result.run.first_contention_seconds {
        writeln!(text, "- contention first seen after {:.0} ms", first * 1e3)?;
    }
    let moved = result.repair.iter().flat_map(|r| &r.moved);
    for moved in moved {
        let from = moved.at_seconds;
        let back = moved.rolled_back.as_ref();
        // At its end the program adds up and prints, for which the bytes go back.
        let end = repaired.seconds();
        let to = back.map_or(end, |b| b.at_seconds.min(end));
        // Copies of code are made in this span; the paper's figure shows that, too.
        let from = from + 0.02;
        writeln!(
            text,
            "- `{}` moved after {:.0} ms, with {} faults and {} copies of code; from 20 ms later on \
             {:.0} million points a second, {:.2} of the {:.0} of the one fixed by hand (Plastic: \
             0.69){}",
            moved.object,
            moved.at_seconds * 1e3,
            moved.faults,
            moved.code.len(),
            repaired.rate(from, to),
            repaired.rate(from, to) / by_hand.rate(0.02, by_hand.seconds()),
            by_hand.rate(0.02, by_hand.seconds()),
            back.map_or(String::new(), |b| format!(
                "; put back after {:.0} ms: {}",
                b.at_seconds * 1e3,
                b.reason
            ))
        )?;
    }
    text.push_str(
        "\nTurns are those in which a line went from one thread to another, as far as samples tell. \
         In the paper these are invalidations that the hardware counted.\n\n\
         | ms | native, million points/s | by hand | repaired | turns a second in the repaired run, \
         thousands | faults in it so far |\n|---|---|---|---|---|---|\n",
    );
    let end = native.seconds().max(repaired.seconds());
    let mut from = 0.0;
    while from < end {
        let to = from + STEP / 1e3;
        writeln!(
            text,
            "| {:.0} | {:.0} | {:.0} | {:.0} | {} | {} |",
            from * 1e3,
            native.rate(from, to),
            by_hand.rate(from, to),
            repaired.rate(from, to),
            turns(result, from, to).map_or_else(String::new, |turns| format!("{:.0}", turns / 1e3)),
            faults(result, to),
        )?;
        from = to;
    }
    Ok(())
}

/// Turns of threads in a second, over all objects, in this time; `None` if the program had ended.
fn turns(result: &Findings, from: f64, to: f64) -> Option<f64> {
    let longest = result.findings.iter().map(|f| f.timeline.len()).max()?;
    let slice = result.run.seconds / longest.max(1) as f64;
    (from < result.run.seconds).then_some(())?;
    let of_slice = |n: usize| -> f64 {
        let all = result.findings.iter().filter(|f| !f.latent);
        all.filter_map(|f| f.timeline.get(n)).sum()
    };
    let shared = |n: usize| {
        let begin = slice * n as f64;
        (to.min(begin + slice) - from.max(begin)).max(0.0)
    };
    let within: f64 = (0..longest).map(|n| of_slice(n) * shared(n)).sum();
    Some(within / (to.min(result.run.seconds) - from))
}

/// Faults in all moves until `moment`.
fn faults(result: &Findings, moment: f64) -> u64 {
    let moved = result.repair.iter().flat_map(|repair| &repair.moved);
    let moves = moved.flat_map(|moved| &moved.moves);
    let last = |all: &Vec<FaultsSoFar>| {
        let so_far = all.iter().take_while(|one| one.at_seconds <= moment);
        so_far.last().map_or(0, |one| one.faults)
    };
    moves.map(|one| last(&one.faults_over_time)).sum()
}

fn once(sunder: &Path, program: &Path, way: Mode, threads: usize, points: u64) -> Result<Progress> {
    let report: PathBuf =
        std::env::temp_dir().join(format!("sunder-eval-progress-{}.json", std::process::id()));
    let is_repaired = matches!(way, Mode::Repaired | Mode::Compared);
    let mut command = if is_repaired {
        let mut command = Command::new(sunder);
        command.args(["repair", "--quiet", "--report"]);
        command.arg(&report);
        if way == Mode::Compared {
            command.arg("--compare-all");
        }
        command.arg("--").arg(program);
        command
    } else {
        Command::new(program)
    };
    let kind = if way == Mode::ByHand {
        "fixed"
    } else {
        "shared"
    };
    command.args([threads.to_string(), points.to_string(), kind.into()]);
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().context("cannot start the program")?;
    ensure!(status.success(), "the program ended with {status}");
    let mut stamps: Vec<f64> = String::from_utf8_lossy(&stderr)
        .lines()
        .filter_map(|line| line.parse::<f64>().ok())
        .map(|nanoseconds| nanoseconds / 1e9)
        .collect();
    stamps.sort_unstable_by(f64::total_cmp);
    let result = is_repaired.then(|| Findings::open(&report)).transpose()?;
    if result.is_some() {
        std::fs::remove_file(&report)?;
    }
    Ok(Progress {
        stamps,
        output: String::from_utf8_lossy(&stdout).into_owned(),
        result,
    })
}
