//! `scst`: the SCSTallocator paper's Tables 1 to 3 for our versions of its programs. Each is
//! compiled for tracing and recorded once per repetition. Its trace is replayed under each
//! placement on as many nodes as it has threads, with the pages of the paper's shared memory and
//! with the lines of a CPU cache.
//!
//! Equation (5) is checked here: if a placement takes more additional pages than it has buckets,
//! the command fails after the record is written.

mod paper;
mod tables;

use crate::record::Record;
use crate::{Options, programs};
use anyhow::{Context, Result, ensure};
use rayon::prelude::*;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Findings, Simulation};
use sunder_workloads::{PARALLEL, Parallel, default_out_dir};
use tables::Tables;

/// In the order of the tables. The others are compared with the first, in the paper with the
/// second.
pub const POLICIES: [&str; 4] = ["general", "sized", "call-site", "sized-call-site"];

/// A machine: size of its granule and protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    /// The size of the granule in bytes.
    pub granule: u64,
    /// The name for `sunder simulate --protocol`.
    protocol: &'static str,
}

/// The paper's machine: a shared memory of pages, in which a copy is readable or writable.
pub const PAGES: Machine = Machine {
    granule: 4096,
    protocol: "msi",
};

/// The caches of CPUs.
pub const LINES: Machine = Machine {
    granule: 64,
    protocol: "mesi",
};

/// The result of one replay.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The number of the recording, from 0.
    pub run: u32,
    /// The size of the granule in bytes.
    pub granule: u64,
    /// One of [`POLICIES`].
    pub policy: &'static str,
    /// The counts.
    pub seen: Simulation,
}

/// Runs the benchmark with `threads` threads on as many nodes.
///
/// # Errors
/// If a program fails, the record can't be written, or equation (5) does not hold.
pub fn run(options: &Options, threads: u32) -> Result<()> {
    let sunder = programs::sunder()?;
    let folder = default_out_dir().join("scst");
    std::fs::create_dir_all(&folder)?;
    let mut record = Record::new(
        "scst",
        &format!(
            "Tables 1 to 3 of the SCSTallocator paper for our versions of its programs, which are \
             not its programs: {threads} threads, of which the first allocates everything, each on \
             a node of its own. One trace a repetition, replayed under each placement with pages of \
             {} bytes (MSI) and lines of {} (MESI), infinite caches, as if each thread had a \
             processor of its own.",
            PAGES.granule, LINES.granule
        ),
        options.repetitions,
        &[
            "program",
            "run",
            "granule",
            "policy",
            "references",
            "granules",
            "cold",
            "true_sharing",
            "false_sharing",
            "upgrades",
            "buckets",
            "general_pages",
            "bucket_pages",
            "extra_pages",
        ],
    )?;
    let mut tables = Tables::new();
    for program in PARALLEL.iter().filter(|p| p.name.contains(&options.only)) {
        let mut all = Vec::new();
        let built = Built::new(program, &sunder, &folder)?;
        for run in 0..options.repetitions {
            let trace = built.record(&sunder, threads)?;
            all.extend(replays(&sunder, &trace, threads, run)?);
            std::fs::remove_file(&trace)?;
        }
        for replay in &all {
            record.row(&row(program, replay)?)?;
        }
        tables.add(program, &all)?;
        println!("{}", program.name);
    }
    let broken = tables.broken();
    record.finish(&tables.summary())?;
    ensure!(broken.is_empty(), "equation (5) does not hold: {broken}");
    Ok(())
}

/// A program compiled for tracing and as usual.
struct Built {
    program: &'static Parallel,
    traced: PathBuf,
    native: PathBuf,
}

impl Built {
    fn new(program: &'static Parallel, sunder: &Path, folder: &Path) -> Result<Self> {
        let native = folder.join(program.name);
        let traced = native.with_extension("traced");
        program.compile(&mut Command::new("gcc"), &native)?;
        program.compile(Command::new(sunder).arg("cc"), &traced)?;
        Ok(Self {
            program,
            traced,
            native,
        })
    }

    /// Records a run, whose output must equal that of a run that is not recorded.
    fn record(&self, sunder: &Path, threads: u32) -> Result<PathBuf> {
        let arguments = [threads.to_string(), self.program.size.to_string()];
        let trace = self.native.with_extension("trace");
        let native = output(Command::new(&self.native).args(&arguments))?;
        let recorded = output(
            Command::new(sunder)
                .args(["trace", "-o"])
                .arg(&trace)
                .arg("--")
                .arg(&self.traced)
                .args(&arguments),
        )?;
        let name = self.program.name;
        ensure!(native == recorded, "{name}: recorded, its output differs");
        Ok(trace)
    }
}

fn output(command: &mut Command) -> Result<Vec<u8>> {
    let done = command.output().with_context(|| format!("{command:?}"))?;
    let told = String::from_utf8_lossy(&done.stderr);
    ensure!(
        done.status.success(),
        "{command:?}: {}: {told}",
        done.status
    );
    Ok(done.stdout)
}

/// Replays `trace` under every policy on both machines, as many at a time as there are CPUs:
/// nothing here is timed.
fn replays(sunder: &Path, trace: &Path, nodes: u32, run: u32) -> Result<Vec<Replay>> {
    let jobs: Vec<(Machine, &'static str)> = [PAGES, LINES]
        .into_iter()
        .flat_map(|machine| POLICIES.map(|policy| (machine, policy)))
        .collect();
    let one = |&(machine, policy): &(Machine, &'static str)| {
        let seen = replay(sunder, trace, nodes, machine, policy)?;
        Ok(Replay {
            run,
            granule: machine.granule,
            policy,
            seen,
        })
    };
    jobs.par_iter().map(one).collect()
}

fn replay(
    sunder: &Path,
    trace: &Path,
    nodes: u32,
    machine: Machine,
    policy: &str,
) -> Result<Simulation> {
    let result = trace.with_extension(format!("{}-{policy}.json", machine.granule));
    output(
        Command::new(sunder)
            .args(["simulate", "--quiet", "--format", "json", "-o"])
            .arg(&result)
            .args(["--placement", policy, "--protocol", machine.protocol])
            .args(["--granule", &machine.granule.to_string()])
            .args(["--nodes", &nodes.to_string()])
            .arg(trace),
    )?;
    let seen = Findings::open(&result)?;
    std::fs::remove_file(&result)?;
    seen.simulation.context("a result without a simulation")
}

fn row(program: &Parallel, replay: &Replay) -> Result<Vec<String>> {
    let counts = &replay.seen.totals;
    let space = tables::space(replay)?;
    let mut fields = vec![
        program.name.to_owned(),
        replay.run.to_string(),
        replay.granule.to_string(),
        replay.policy.to_owned(),
    ];
    fields.extend(
        [
            counts.references,
            replay.seen.granules,
            counts.cold,
            counts.true_sharing,
            counts.false_sharing,
            counts.upgrades,
            space.buckets,
            space.general_pages,
            space.pages,
            space.additional_pages,
        ]
        .map(|figure| figure.to_string()),
    );
    Ok(fields)
}
