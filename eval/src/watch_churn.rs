//! `watch-churn`: does a watch grow? Processes start and end beside it as fast as the machine can; then
//! very many sleep at once; then one process has very many threads. Recorded over time: the memory and
//! CPU time of each of its processes, and what was lost.

use crate::measure::quantile;
use crate::programs;
use crate::record::Record;
use crate::watching::Watching;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// How much churn.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct What {
    /// How many processes start and end, one after another
    #[arg(long, default_value_t = 1_000_000)]
    starts: u64,
    /// How many processes sleep at once, and how many threads one process has
    #[arg(long, default_value_t = 10_000)]
    at_once: u64,
    /// How long each of the quiet phases takes, in seconds
    #[arg(long, default_value_t = 30)]
    seconds: u64,
}

/// Starts between two looks at the watcher.
const BATCH: u64 = 20_000;
/// What the documents promise beside debug information, in KiB.
const MOST_KIB: u64 = 64 << 10;

const COLUMNS: [&str; 9] = [
    "phase",
    "seconds",
    "starts",
    "teller_kib",
    "observer_kib",
    "observer_peak_kib",
    "teller_cpu_s",
    "observer_cpu_s",
    "lost_records",
];

/// One line of the record.
#[derive(Clone, Copy, Debug)]
struct Seen {
    phase: &'static str,
    seconds: f64,
    starts: u64,
    teller_kib: u64,
    observer_kib: u64,
    peak_kib: u64,
    cpu: f64,
}

struct Bench {
    record: Record,
    watching: Watching,
    since: Instant,
    starts: u64,
    all: Vec<Seen>,
}

/// Runs the benchmark.
///
/// # Errors
/// If this machine can't be watched, or the record can't be written.
pub fn run(what: &What) -> Result<()> {
    let sunder = programs::sunder()?;
    let churn = programs::built("churn", "-O2")?;
    let tiny = programs::built_alone("tiny")?;
    let record = Record::new(
        "watch-churn",
        "Memory and CPU time of the processes of `sunder watch` at its usual budget while processes \
         start and end beside it as fast as the machine can, while very many sleep, and while one \
         process has very many threads, of which two share falsely.",
        1,
        &COLUMNS,
    )?;
    let mut bench = Bench {
        record,
        watching: Watching::begin(&sunder, &["--interval", "5s"])?,
        since: Instant::now(),
        starts: 0,
        all: Vec::new(),
    };
    bench.rest("idle", what.seconds)?;
    while bench.starts < what.starts {
        bench.start(&churn, &tiny, BATCH.min(what.starts - bench.starts))?;
    }
    bench.rest("after", what.seconds)?;
    let mut there = Vec::new();
    for (phase, mode) in [("processes", "processes"), ("threads", "threads")] {
        let beside = Beside::begin(&churn, mode, what.at_once)?;
        there.push((phase, beside.there));
        bench.rest(phase, what.seconds)?;
        drop(beside);
    }
    bench.rest("end", what.seconds)?;
    let told = bench.watching.records()?;
    let findings = told
        .iter()
        .filter(|r| matches!(r, sunder_findings::Record::Finding(_)));
    let findings = findings.count();
    let Bench {
        record,
        watching,
        all,
        ..
    } = bench;
    let status = watching.end()?;
    let mut text = summary(&all, &there);
    writeln!(
        text,
        "\nIn {:.0} s: {} samples, {} looks ({} failed), {findings} records of findings, {} records of the \
         kernel lost, {:.2} s of CPU time of its own and {:.2} s in interrupts ({} Hz).",
        status.seconds,
        status.samples,
        status.looks,
        status.looks_failed,
        status.lost_records,
        status.own_cpu_seconds,
        status.interrupt_seconds,
        status.frequency_hz,
    )?;
    record.finish(&text)
}

impl Bench {
    /// Looks at the watcher each second for so long.
    fn rest(&mut self, phase: &'static str, seconds: u64) -> Result<()> {
        for _ in 0..seconds {
            std::thread::sleep(Duration::from_secs(1));
            self.look(phase)?;
        }
        Ok(())
    }

    /// Lets so many processes start and end, and looks at the watcher.
    fn start(&mut self, churn: &Path, tiny: &Path, count: u64) -> Result<()> {
        let told = Command::new(churn)
            .args(["starts", &count.to_string()])
            .arg(tiny)
            .output()
            .context("cannot run churn")?;
        let started: u64 = String::from_utf8_lossy(&told.stdout).trim().parse()?;
        ensure!(started == count, "only {started} of {count} started");
        self.starts += started;
        self.look("starts")
    }

    fn look(&mut self, phase: &'static str) -> Result<()> {
        let (teller, observer) = (self.watching.teller()?, self.watching.observer()?);
        let status = self.watching.status()?.unwrap_or_default();
        let seen = Seen {
            phase,
            seconds: self.since.elapsed().as_secs_f64(),
            starts: self.starts,
            teller_kib: teller.resident_kib,
            observer_kib: observer.resident_kib,
            peak_kib: observer.peak_kib,
            cpu: teller.cpu + observer.cpu,
        };
        self.record.row(&[
            phase.into(),
            format!("{:.1}", seen.seconds),
            seen.starts.to_string(),
            seen.teller_kib.to_string(),
            seen.observer_kib.to_string(),
            seen.peak_kib.to_string(),
            format!("{:.2}", teller.cpu),
            format!("{:.2}", observer.cpu),
            status.lost_records.to_string(),
        ])?;
        self.all.push(seen);
        Ok(())
    }
}

/// The program `churn`, which goes on until it is dropped.
pub struct Beside {
    child: Child,
    /// How many processes or threads there are.
    pub there: u64,
}

impl Beside {
    /// Starts it in this mode.
    ///
    /// # Errors
    /// If it can't be started.
    pub fn begin(churn: &Path, mode: &str, count: u64) -> Result<Self> {
        let mut child = Command::new(churn)
            .args([mode, &count.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot run churn")?;
        let mut line = String::new();
        let out = child.stdout.take().context("it is piped")?;
        BufReader::new(out).read_line(&mut line)?;
        let there = line.trim().parse()?;
        Ok(Self { child, there })
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}

/// A table of the phases, and whether the watcher has grown.
fn summary(all: &[Seen], there: &[(&str, u64)]) -> String {
    let mut text = String::from(
        "| phase | s | starts | at once | observes: first, last, most MiB | tells: most MiB | % of a CPU |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let mib = |kib: u64| kib as f64 / 1024.0;
    let mut before = (0.0, 0, 0.0);
    for phase in ["idle", "starts", "after", "processes", "threads", "end"] {
        let of: Vec<&Seen> = all.iter().filter(|seen| seen.phase == phase).collect();
        let (Some(first), Some(last)) = (of.first(), of.last()) else {
            continue;
        };
        let seconds = last.seconds - before.0;
        let at_once = there.iter().find(|(of, _)| *of == phase);
        let most = |f: fn(&Seen) -> u64| mib(of.iter().map(|seen| f(seen)).max().unwrap_or(0));
        let _ = writeln!(
            text,
            "| {phase} | {seconds:.0} | {} | {} | {:.1}, {:.1}, {:.1} | {:.1} | {:.2} |",
            last.starts - before.1,
            at_once.map_or("–".into(), |(_, count)| count.to_string()),
            mib(first.observer_kib),
            mib(last.observer_kib),
            most(|seen| seen.observer_kib),
            most(|seen| seen.teller_kib),
            (last.cpu - before.2) / seconds.max(1e-9) * 100.0,
        );
        before = (last.seconds, last.starts, last.cpu);
    }
    let peak = all.iter().map(|seen| seen.peak_kib).max().unwrap_or(0);
    let (early, late) = growth(all);
    let _ = writeln!(
        text,
        "\nWhile processes started, the one that observes had {early:.1} MiB in the median of the second tenth, \
         and {late:.1} MiB in that of the last tenth. It never had more than {:.1} MiB{}.",
        mib(peak),
        if peak > MOST_KIB {
            ", which is MORE than the 64 MiB that are promised"
        } else {
            ""
        },
    );
    text
}

/// Resident MiB of the process that observes, while processes start: the medians of the second and of
/// the last tenth. The first tenth is not compared: rings and tables get their sizes there.
fn growth(all: &[Seen]) -> (f64, f64) {
    let of = all.iter().filter(|seen| seen.phase == "starts");
    let sizes: Vec<f64> = of.map(|seen| seen.observer_kib as f64 / 1024.0).collect();
    let tenth = sizes.len().div_ceil(10);
    let second = sizes.iter().skip(tenth).take(tenth).copied();
    let last = sizes.iter().rev().take(tenth).copied();
    let median = |values: Vec<f64>| quantile(&values, 0.5);
    (median(second.collect()), median(last.collect()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(phase: &'static str, observer_kib: u64) -> Seen {
        Seen {
            phase,
            seconds: 1.0,
            starts: 0,
            teller_kib: 1,
            observer_kib,
            peak_kib: observer_kib,
            cpu: 0.0,
        }
    }

    #[test]
    fn growth_while_processes_start_is_seen() {
        // 20 looks: 1 MiB more each, beside a phase that does not count.
        let mut all: Vec<Seen> = (1..=20).map(|mib| seen("starts", mib << 10)).collect();
        all.push(seen("threads", 1 << 20));
        assert_eq!(growth(&all), (3.5, 19.5));
        assert_eq!(growth(&[]), (0.0, 0.0));
    }

    #[test]
    fn more_than_is_promised_is_said() {
        let text = summary(&[seen("starts", MOST_KIB + 1)], &[]);
        assert!(text.contains("MORE than the 64 MiB"), "{text}");
        let text = summary(&[seen("starts", MOST_KIB)], &[]);
        assert!(!text.contains("MORE"), "{text}");
    }
}
