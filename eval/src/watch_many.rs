//! `watch-many`: a machine with 50 processes, of which three share falsely. How long a watch takes to find
//! them with the right object and field, and what it costs the machine: how long the fixed variants of the
//! three take beside all of them and a watch that has just begun, and without the watch. (The three
//! themselves vary too much from run to run.)

use crate::measure::{median, quantile};
use crate::options::{Options, Set};
use crate::programs::{self, Target};
use crate::record::Record;
use crate::watch_churn::Beside;
use crate::watching::Watching;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Stdio};
use std::time::{Duration, Instant};
use sunder_findings::{Record as Told, Watched};
use sunder_workloads::{Variant, Workload};

/// Those that share falsely: a global variable, a block of the heap, and atomic counters in C++.
const FALSELY: [&str; 3] = ["adjacent_globals", "linear_regression", "atomic_counters"];
/// How long they are looked for.
const PATIENCE: Duration = Duration::from_secs(60);
/// So many tests' lengths are more than the three get done before they are ended.
const FOR_LONG: u64 = 2000;

const COLUMNS: [&str; 6] = ["what", "pair", "seconds", "watch_cpu_s", "object", "field"];

/// How many, and for how long.
#[derive(Debug, Clone, Copy, clap::Args)]
pub struct What {
    /// Processes beside the three
    #[arg(long, default_value_t = 47)]
    others: u64,
    /// How long the fixed variants take about in each run that is timed, in tests' lengths
    #[arg(long, default_value_t = 24)]
    lengths: u64,
}

/// A program, and what is known of it.
type Program = (Workload, Target);

/// One of the three is found.
struct Found {
    program: String,
    /// Since the watch began.
    seconds: f64,
    right: bool,
}

/// Runs the benchmark.
///
/// # Errors
/// If this machine can't be watched, a program fails, or the record can't be written.
pub fn run(what: &What, options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let churn = programs::built("churn", "-O2")?;
    let mut record = Record::new(
        "watch-many",
        "A machine with 50 processes, of which three share falsely (`adjacent_globals`, \
         `linear_regression` and `atomic_counters`) and the others work now and then. `found`: seconds \
         from the start of `sunder watch` to the record of each. `alone` and `watched`: how long the \
         fixed variants of the three take together beside all of them, without a watch, and with one \
         that has just begun.",
        options.repetitions,
        &COLUMNS,
    )?;
    let three = variants(options, Variant::Shared)?;
    let fixed = variants(options, Variant::Fixed)?;
    let beside = Beside::begin(&churn, "busy", what.others)?;
    ensure!(beside.there == what.others, "not all processes started");
    let mut found = Vec::new();
    for round in 0..options.repetitions {
        found.extend(find(&sunder, &three, round, &mut record)?);
    }
    let mut pairs = Vec::new();
    let running = Running::begin(&three, FOR_LONG)?;
    for round in 0..options.repetitions {
        let (alone, _) = timed(None, &fixed, what.lengths)?;
        let (watched, cpu) = timed(Some(&sunder), &fixed, what.lengths)?;
        for (name, seconds, cpu) in [("alone", alone, 0.0), ("watched", watched, cpu)] {
            record.row(&[
                name.into(),
                round.to_string(),
                format!("{seconds:.4}"),
                format!("{cpu:.3}"),
                String::new(),
                String::new(),
            ])?;
        }
        println!(
            "pair {round}: {alone:.2} s alone, {watched:.2} s watched, {cpu:.2} s of CPU time"
        );
        pairs.push((alone, watched, cpu));
    }
    ensure!(running.go_on()?, "the three ended before the last pair");
    record.finish(&summary(&found, &pairs, options.repetitions))
}

/// The three programs in this variant.
fn variants(options: &Options, wanted: Variant) -> Result<Vec<Program>> {
    let all = programs::workloads(&Options {
        scale: 1,
        set: Set::Workloads,
        ..options.clone()
    })?;
    let is_one = |name: &str| FALSELY.contains(&name);
    let of = all
        .into_iter()
        .filter(|(workload, variant, _)| is_one(&workload.name) && *variant == wanted);
    let of: Vec<Program> = of.map(|(workload, _, target)| (workload, target)).collect();
    ensure!(of.len() == FALSELY.len(), "a workload is missing");
    Ok(of)
}

/// Programs that run until they are dropped.
struct Running(Vec<Child>);

impl Running {
    fn begin(three: &[Program], lengths: u64) -> Result<Self> {
        let mut all = Self(Vec::new());
        for (_, target) in three {
            let mut target = target.clone();
            target.longer(lengths)?;
            let mut command = target.native();
            command.stdin(Stdio::null()).stdout(Stdio::null());
            all.0
                .push(command.spawn().context("cannot start a program")?);
        }
        Ok(all)
    }

    fn has(&self, pid: u32) -> bool {
        self.0.iter().any(|child| child.id() == pid)
    }

    /// Whether none has ended.
    fn go_on(mut self) -> Result<bool> {
        for child in &mut self.0 {
            if child.try_wait()?.is_some() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn wait(mut self) -> Result<()> {
        for mut child in self.0.drain(..) {
            ensure!(child.wait()?.success(), "a program failed");
        }
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.0 {
            // It may have ended.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Begins a watch and waits until the three are found, for a minute at most.
fn find(sunder: &Path, three: &[Program], round: u32, record: &mut Record) -> Result<Vec<Found>> {
    let running = Running::begin(three, FOR_LONG)?;
    let begun = Instant::now();
    let watching = Watching::begin(sunder, &[])?;
    let mut found: Vec<Found> = Vec::new();
    while found.len() < three.len() && begun.elapsed() < PATIENCE {
        std::thread::sleep(Duration::from_millis(100));
        for told in watching.records()? {
            let Told::Finding(told) = told else { continue };
            let known = found.iter().any(|f| f.program == told.origin.program);
            if known || !running.has(told.origin.pid) {
                continue;
            }
            let of = |w: &&Program| told.origin.program.starts_with(&w.0.name);
            let right = three.iter().find(of).is_some_and(|w| is_right(&w.0, &told));
            let seconds = begun.elapsed().as_secs_f64();
            record.row(&[
                "found".into(),
                round.to_string(),
                format!("{seconds:.1}"),
                String::new(),
                format!("\"{}\"", told.finding.subject()),
                format!("\"{}\"", fields(&told).join(" ")),
            ])?;
            println!("{} after {seconds:.1} s", told.finding.subject());
            found.push(Found {
                program: told.origin.program.clone(),
                seconds,
                right,
            });
        }
    }
    watching.end()?;
    Ok(found)
}

/// The fields that the finding names.
fn fields(told: &Watched) -> Vec<String> {
    let words = told.finding.lines.iter().flat_map(|line| &line.words);
    let mut fields: Vec<String> = words.filter_map(|word| word.field.clone()).collect();
    fields.sort();
    fields.dedup();
    fields
}

/// Whether the finding names the object that the table of workloads expects, or its neighbour, and fields
/// where these are expected. A watch sees no allocation, so a block of the heap has the name of its type.
fn is_right(workload: &Workload, told: &Watched) -> bool {
    let object = &told.finding.object;
    let has = fields(told);
    workload.shared.must_find().any(|expected| {
        let neighbour = expected.neighbour.as_ref().and_then(|n| n.name.as_ref());
        let names = [expected.name.as_ref(), neighbour];
        let by_name = names
            .iter()
            .flatten()
            .any(|name| object.name.as_ref() == Some(name));
        let is_type = |of: &String| object.type_name.as_ref().is_some_and(|t| t.contains(of));
        let by_type = object.name.is_none() && expected.type_name.as_ref().is_some_and(is_type);
        let field = |field: &String| has.iter().any(|has| has.contains(field.as_str()));
        (by_name || by_type) && expected.fields.iter().all(field)
    })
}

/// How long these take together, and the CPU time of the watch beside them.
fn timed(sunder: Option<&Path>, programs: &[Program], lengths: u64) -> Result<(f64, f64)> {
    let watching = sunder
        .map(|sunder| Watching::begin(sunder, &[]))
        .transpose()?;
    let taken = |watching: &Watching| -> Result<f64> {
        Ok(watching.teller()?.cpu + watching.observer()?.cpu)
    };
    let before = watching.as_ref().map_or(Ok(0.0), taken)?;
    let begun = Instant::now();
    Running::begin(programs, lengths)?.wait()?;
    let seconds = begun.elapsed().as_secs_f64();
    let cpu = watching.as_ref().map_or(Ok(0.0), taken)? - before;
    if let Some(watching) = watching {
        watching.end()?;
    }
    Ok((seconds, cpu))
}

fn summary(found: &[Found], pairs: &[(f64, f64, f64)], rounds: u32) -> String {
    let seconds: Vec<f64> = found.iter().map(|f| f.seconds).collect();
    let right = found.iter().filter(|f| f.right).count();
    let all = rounds as usize * FALSELY.len();
    let mut text = format!(
        "Of {all} programs that shared falsely, {} were found",
        found.len()
    );
    if !seconds.is_empty() {
        let _ = write!(
            text,
            " after {:.1} s in the median and {:.1} s at most, {right} with the right object and field",
            median(&seconds),
            quantile(&seconds, 1.0)
        );
    }
    let cost: Vec<f64> = pairs
        .iter()
        .map(|(alone, watched, _)| watched / alone)
        .collect();
    let cpu: Vec<f64> = pairs
        .iter()
        .map(|(_, watched, cpu)| 100.0 * cpu / watched)
        .collect();
    let _ = writeln!(
        text,
        ".\n\nBeside a watch that had just begun they took {:.3} of their time alone in the median of {} \
         pairs ({:.3} and {:.3} at the quarters). The watch took {:.2} % of a CPU in the median.\n",
        median(&cost),
        pairs.len(),
        quantile(&cost, 0.25),
        quantile(&cost, 0.75),
        median(&cpu)
    );
    text.push_str("| pair | alone s | watched s | of the time alone | CPU of the watch s |\n|---|---|---|---|---|\n");
    for (number, (alone, watched, cpu)) in pairs.iter().enumerate() {
        let _ = writeln!(
            text,
            "| {number} | {alone:.2} | {watched:.2} | {:.3} | {cpu:.2} |",
            watched / alone
        );
    }
    text
}
