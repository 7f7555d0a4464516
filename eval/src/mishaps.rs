//! `kills` and `faults`: the tool is killed at random instants and at chosen system calls, its
//! terminal is closed, its system calls fail, and memory, descriptors, space and `/proc` are
//! missing. Under every command that starts a program or attaches to one, the program must do what
//! it does natively, and nothing may be left behind. The short form of this is the command line's
//! test `mishaps`.

use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;
use std::sync::Mutex;
use std::time::Duration;
pub use sunder_mishaps::Kind;
use sunder_mishaps::{MODES, Mode, Places, Prepared, Program, Run, Subject, Verdict};

/// What to run.
#[derive(Clone, Debug, clap::Args)]
pub struct What {
    /// Only this command of the tool, as the table names it; all if not given
    #[arg(long)]
    mode: Option<String>,
    /// Runs of each command
    #[arg(long, default_value_t = 1000)]
    times: u64,
    /// The first run's seed; the next one has the next number
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Runs at the same time
    #[arg(long, default_value_t = 2)]
    jobs: u64,
    /// Of the eval's own programs and xz, only those whose name contains this
    #[arg(long, default_value = "")]
    program: String,
}

const COLUMNS: [&str; 8] = [
    "mode", "program", "seed", "mishap", "verdict", "tool", "ended", "life_ms",
];

/// One of so many runs is of a program of the distribution, where the mode has one.
const REAL_EVERY: u64 = 4;

/// The figures of one mode and program.
#[derive(Default)]
struct Row {
    runs: u32,
    /// How often `SIGKILL` ended the tool.
    killed: u32,
    /// How often the tool failed with 125.
    failed: u32,
    verdicts: BTreeMap<String, u32>,
    wrong: u32,
}

/// What the threads share.
struct Shared {
    record: Record,
    rows: BTreeMap<(usize, String), Row>,
    failures: String,
}

/// Runs the benchmark.
///
/// # Errors
/// If a run was wrong, after all runs are recorded; or if nothing can be run or recorded.
pub fn run(kind: Kind, what: &What, options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let named = |mode: &&Mode| what.mode.as_deref().is_none_or(|name| name == mode.name);
    let modes: Vec<&Mode> = MODES.iter().filter(named).collect();
    ensure!(!modes.is_empty(), "there is no such mode");
    let (name, about) = match kind {
        Kind::Kills => (
            "kills",
            "The tool is ended by `SIGKILL` (half of the runs), `SIGTERM` or a closed terminal: half \
             of the time at a random microsecond of its usual life, half of the time at a system \
             call, drawn from those that it makes (by strace). A run is wrong if the program ends \
             otherwise than natively (output, status), if the tool hangs, panics or ends with \
             another status than it documents, or if a process, a file in /tmp or /dev/shm, or code \
             in a program to which it was attached is left. What a document allows is counted \
             apart.",
        ),
        Kind::Faults => (
            "faults",
            "System calls of the tool fail (by strace): one call once, or each hundredth of every \
             kind; or addresses, descriptors, space on the disk, or `/proc` are missing. A run is \
             wrong if the program ends otherwise than natively and was started, if the tool hangs, \
             panics or ends without a sentence, or if anything is left behind.",
        ),
    };
    let record = Record::new(name, about, u32::try_from(what.times)?, &COLUMNS)?;
    let shared = Mutex::new(Shared {
        record,
        rows: BTreeMap::new(),
        failures: String::new(),
    });
    for (number, mode) in modes.iter().enumerate() {
        // Prepared once for each thread: each has temporary folders of its own.
        std::thread::scope(|scope| -> Result<()> {
            let jobs = what.jobs.max(1);
            let all: Vec<_> = (0..jobs)
                .map(|job| {
                    let (sunder, shared) = (&sunder, &shared);
                    let place = (number, *mode);
                    scope.spawn(move || {
                        share(kind, what, options, place, (job, jobs), sunder, shared)
                    })
                })
                .collect();
            for job in all {
                job.join().ok().context("a thread panicked")??;
            }
            Ok(())
        })?;
    }
    let shared = shared.into_inner().ok().context("a thread panicked")?;
    let wrong: u32 = shared.rows.values().map(|row| row.wrong).sum();
    let text = summary(&shared.rows, &modes);
    shared.record.finish(&text)?;
    ensure!(wrong == 0, "{wrong} runs were not right");
    Ok(())
}

/// The runs of one thread.
fn share(
    kind: Kind,
    what: &What,
    options: &Options,
    (number, mode): (usize, &Mode),
    (job, jobs): (u64, u64),
    sunder: &Path,
    shared: &Mutex<Shared>,
) -> Result<()> {
    let places = Places::new()?;
    let scale = options.scale as f64 / 4.0;
    let subjects = Subject::of(mode, sunder, places.own(), scale).map_err(anyhow::Error::msg)?;
    let mut prepared = Vec::new();
    for subject in subjects {
        if !subject.name.contains(&what.program) {
            continue;
        }
        let ready = Prepared::new(mode, subject, sunder, &places).map_err(anyhow::Error::msg)?;
        let usual = ready.usual();
        if usual.calls.is_empty() {
            println!("SKIP: no system call is chosen: strace is not there");
        }
        println!(
            "{}, {}: lives {:?}, {} calls",
            mode.name,
            ready.subject().name,
            usual.life,
            usual.calls.count()
        );
        prepared.push(ready);
    }
    let first = prepared.first().context("there is no such program")?;
    for run in (job..what.times).step_by(jobs as usize) {
        let real = prepared.get(1).filter(|_| run % REAL_EVERY == 3);
        let ready = real.unwrap_or(first);
        let seed = what.seed + run;
        let run = ready.run(kind, seed)?;
        let mut shared = shared.lock().ok().context("a thread panicked")?;
        shared.add((number, mode), &ready.subject().name, seed, &run)?;
    }
    Ok(())
}

impl Shared {
    fn add(
        &mut self,
        (number, mode): (usize, &Mode),
        program: &str,
        seed: u64,
        Run {
            mishap,
            outcome: seen,
            verdict,
        }: &Run,
    ) -> Result<()> {
        let told = match verdict {
            Verdict::Native => "as natively".into(),
            Verdict::NotStarted => "not started".into(),
            Verdict::EndedBySignal => "ended by the signal".into(),
            Verdict::Documented(what) => format!("documented: {what}"),
            Verdict::Wrong(_) => "WRONG".into(),
        };
        let mode = mode.name;
        let row = self.rows.entry((number, program.to_owned())).or_default();
        row.runs += 1;
        row.killed += u32::from(seen.tool.and_then(|s| s.signal()) == Some(libc::SIGKILL));
        row.failed += u32::from(seen.tool.and_then(|s| s.code()) == Some(125));
        *row.verdicts.entry(told.clone()).or_default() += 1;
        let shown = |status: Option<ExitStatus>| {
            status.map_or_else(|| "hung".into(), |s| s.to_string().replace(',', ";"))
        };
        let ended = match seen.program {
            Program::Ended(status) => shown(Some(status)),
            Program::OfTool => "known to the tool".into(),
            Program::Hung => shown(None),
        };
        self.record.row(&[
            mode.into(),
            program.into(),
            seed.to_string(),
            mishap.to_string(),
            told,
            shown(seen.tool),
            ended,
            format!("{:.1}", seen.life.max(Duration::ZERO).as_secs_f64() * 1e3),
        ])?;
        if let Verdict::Wrong(why) = verdict {
            row.wrong += 1;
            println!("{mode}, {program}, seed {seed}: {mishap}: {why}");
            writeln!(
                self.failures,
                "## {mode}, {program}, seed {seed}: {mishap}\n\n{why}\n\ntool {:?}, program {:?}\n\n\
                 standard error:\n{}\nstandard output: {} bytes, ending with\n{}\n",
                seen.tool,
                seen.program,
                seen.stderr,
                seen.stdout.len(),
                String::from_utf8_lossy(&seen.stdout[seen.stdout.len().saturating_sub(200)..])
            )?;
            self.record.attach("failures.md", &self.failures)?;
        }
        Ok(())
    }
}

fn summary(rows: &BTreeMap<(usize, String), Row>, modes: &[&Mode]) -> String {
    let all = |of: fn(&Row) -> u32| rows.values().map(of).sum::<u32>();
    let mut text = format!(
        "- {} runs, {} of them not right\n- the tool was killed in {}, and failed with 125 in {}\n\n\
         | mode | program | runs | not right | tool killed | tool failed | verdicts |\n\
         |---|---|---|---|---|---|---|\n",
        all(|r| r.runs),
        all(|r| r.wrong),
        all(|r| r.killed),
        all(|r| r.failed)
    );
    for ((number, program), row) in rows {
        let verdicts: Vec<String> = row
            .verdicts
            .iter()
            .map(|(what, times)| format!("{times} {what}"))
            .collect();
        let _ = writeln!(
            text,
            "| {} | {program} | {} | {} | {} | {} | {} |",
            modes[*number].name,
            row.runs,
            row.wrong,
            row.killed,
            row.failed,
            verdicts.join("; ")
        );
    }
    text
}
