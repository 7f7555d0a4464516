//! `sunder demo`: compiles and runs a small program with false sharing, shows the report, runs
//! the original and the fixed variant alternately, and prints both times.

use crate::args::{Demo, ReportOptions};
use crate::output::{Output, note};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::fmt::{self, Display, Formatter};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sunder_gain::{Effort, Experiment};
use sunder_live::Observation;

const SOURCE: &str = include_str!("demo.c");

/// Requests of each thread in the run that is observed: about a second, enough to measure what a fix gains.
const OBSERVED: &str = "30000000";

/// The most pairs of runs; a pair is one run of each variant.
const PAIRS: usize = 15;

/// A pair is run only if it is expected to end within this time after the first began.
const TIMING: Duration = Duration::from_secs(4);

/// Runs the command. Returns the exit status.
///
/// # Errors
/// If there is no compiler or the programs can't be run.
pub fn run(options: &Demo) -> Result<u8> {
    let temporary;
    let folder: &Path = match &options.keep {
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            folder
        }
        None => {
            temporary = tempfile::tempdir().context("cannot make a temporary folder")?;
            temporary.path()
        }
    };
    let source = folder.join("demo.c");
    std::fs::write(&source, SOURCE)
        .with_context(|| format!("cannot write {}", source.display()))?;
    println!("Compiling a program whose threads count into neighbouring structs (demo.c)");
    let shared = compile(&source, &folder.join("demo"), &[])?;
    let fixed = compile(&source, &folder.join("demo-fixed"), &["-DFIXED=1"])?;
    let threads = options.threads.to_string();
    println!("Running it under `sunder detect -- demo {threads} {OBSERVED}`:\n");
    let program: Vec<OsString> = vec![
        shared.clone().into(),
        threads.clone().into(),
        OBSERVED.into(),
    ];
    let what = Observation {
        program,
        ..Observation::default()
    };
    let mut experiment = Experiment::of_command(Effort::Little);
    let (findings, exit) = sunder_live::observe_with(&what, &mut experiment)?;
    if !exit.success() {
        bail!("the demo program failed: {exit}");
    }
    Output::new(&ReportOptions::default(), true)?.write(&findings);
    println!("\nRunning it and its fixed variant (-DFIXED=1 aligns each struct to a line)");
    print!("\n{}", in_turns(&shared, &fixed, &threads)?);
    if let Some(folder) = &options.keep {
        println!("\nSources and programs are in {}.", folder.display());
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        note("this machine has one CPU: threads take turns, so lines do not move between cores");
    }
    Ok(0)
}

fn compile(source: &Path, program: &Path, flags: &[&str]) -> Result<PathBuf> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(program)
        .arg(source)
        .args(flags)
        .output()
        .with_context(|| {
            format!(
                "the demo needs a C compiler, and {} can't be run; install gcc or set CC",
                compiler.display()
            )
        })?;
    if !compiled.status.success() {
        bail!(
            "{} could not compile the demo:\n{}",
            compiler.display(),
            String::from_utf8_lossy(&compiled.stderr)
        );
    }
    Ok(program.to_owned())
}

/// Runs both variants alternately, so that other load on the machine affects both in the same
/// way.
fn in_turns(shared: &Path, fixed: &Path, threads: &str) -> Result<Timings> {
    let mut timings = Timings::default();
    let start = Instant::now();
    while timings.another(start.elapsed()) {
        let pair = [time(shared, threads)?, time(fixed, threads)?];
        timings.pairs.push(pair);
    }
    Ok(timings)
}

fn time(program: &Path, threads: &str) -> Result<Duration> {
    let start = Instant::now();
    let status = Command::new(program)
        .arg(threads)
        .stdout(Stdio::null())
        .status()
        .with_context(|| format!("cannot run {}", program.display()))?;
    if !status.success() {
        bail!("{} failed: {status}", program.display());
    }
    Ok(start.elapsed())
}

/// The times of the variant with false sharing and of the fixed one, in pairs.
#[derive(Default)]
struct Timings {
    pairs: Vec<[Duration; 2]>,
}

impl Timings {
    /// Whether there is time for another pair after these, which took `elapsed`. There is
    /// always one pair.
    fn another(&self, elapsed: Duration) -> bool {
        let longest = self.pairs.iter().map(|[shared, fixed]| *shared + *fixed);
        longest
            .max()
            .is_none_or(|longest| self.pairs.len() < PAIRS && elapsed + longest <= TIMING)
    }

    /// The times of one variant in milliseconds: 0 with false sharing, 1 fixed.
    fn milliseconds(&self, variant: usize) -> Spread {
        let times = self.pairs.iter().map(|pair| pair[variant].as_secs_f64());
        Spread::of(times.map(|seconds| seconds * 1e3).collect())
    }

    /// How many times as fast the fixed variant was, over the pairs.
    fn gain(&self) -> Spread {
        let gains = self.pairs.iter();
        Spread::of(
            gains
                .map(|[shared, fixed]| shared.as_secs_f64() / fixed.as_secs_f64().max(1e-9))
                .collect(),
        )
    }
}

impl Display for Timings {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [shared, fixed] = [0, 1].map(|variant| self.milliseconds(variant));
        let gain = self.gain();
        writeln!(
            f,
            "  with false sharing  {:7.1} ms  ({:.1} to {:.1})",
            shared.median, shared.least, shared.most
        )?;
        writeln!(
            f,
            "  fixed               {:7.1} ms  ({:.1} to {:.1})",
            fixed.median, fixed.least, fixed.most
        )?;
        let plural = if self.pairs.len() == 1 { "" } else { "s" };
        writeln!(
            f,
            "  {:.1} times as fast ({:.1} to {:.1}): the median and the range of {} pair{plural} of runs, in turns",
            gain.median,
            gain.least,
            gain.most,
            self.pairs.len()
        )?;
        if gain.least < 1.0 {
            writeln!(
                f,
                "  Not each pair was faster: do other programs use the CPUs? Threads that run one after the other share nothing."
            )?;
        }
        Ok(())
    }
}

/// The median and the range of some figures.
struct Spread {
    least: f64,
    median: f64,
    most: f64,
}

impl Spread {
    /// The spread of at least one figure.
    fn of(mut figures: Vec<f64>) -> Self {
        figures.sort_by(f64::total_cmp);
        let middle = figures.len() / 2;
        let median = if figures.len().is_multiple_of(2) {
            f64::midpoint(figures[middle - 1], figures[middle])
        } else {
            figures[middle]
        };
        Self {
            least: figures[0],
            median,
            most: figures[figures.len() - 1],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timings(milliseconds: &[[u64; 2]]) -> Timings {
        let pairs = milliseconds.iter();
        Timings {
            pairs: pairs.map(|pair| pair.map(Duration::from_millis)).collect(),
        }
    }

    #[test]
    fn the_median_of_the_pairs_is_shown_with_its_range() {
        let timings = timings(&[[400, 100], [380, 100], [500, 125], [420, 120], [390, 100]]);
        let told = timings.to_string();
        let lines: Vec<&str> = told.lines().collect();
        assert_eq!(
            lines,
            [
                "  with false sharing    400.0 ms  (380.0 to 500.0)",
                "  fixed                 100.0 ms  (100.0 to 125.0)",
                "  3.9 times as fast (3.5 to 4.0): the median and the range of 5 pairs of runs, in turns",
            ]
        );
    }

    /// One disturbed run of the fixed variant once turned a gain of four into "1.1 times as
    /// fast".
    #[test]
    fn one_disturbed_run_does_not_move_the_median() {
        let gain = timings(&[[400, 100], [400, 364], [400, 100]]).gain();
        assert!((gain.median - 4.0).abs() < 1e-9, "{}", gain.median);
        assert!(gain.least < 1.2, "{}", gain.least);
    }

    #[test]
    fn a_gain_that_some_pairs_lack_is_shown_with_a_doubt() {
        let told = timings(&[[236, 198], [195, 297], [370, 195]]).to_string();
        assert!(told.contains("do other programs use the CPUs?"), "{told}");
        let told = timings(&[[236, 198], [400, 100]]).to_string();
        assert!(!told.contains("other programs"), "{told}");
    }

    #[test]
    fn of_an_even_number_the_median_lies_between_the_two_in_the_middle() {
        let spread = Spread::of(vec![9.0, 1.0, 3.0, 5.0]);
        let parts = [spread.least, spread.median, spread.most];
        assert!(
            parts
                .iter()
                .zip([1.0, 4.0, 9.0])
                .all(|(a, b)| (a - b).abs() < 1e-9)
        );
        assert!((Spread::of(vec![2.0]).median - 2.0).abs() < 1e-9);
    }

    #[test]
    fn pairs_begin_only_if_they_would_end_in_time_but_one_always_does() {
        assert!(timings(&[]).another(Duration::from_secs(9)));
        let one = timings(&[[700, 300]]);
        assert!(one.another(Duration::from_secs(3)));
        assert!(!one.another(Duration::from_millis(3001)));
        let all = timings(&[[2, 1]; PAIRS]);
        assert!(!all.another(Duration::from_millis(45)));
    }
}
