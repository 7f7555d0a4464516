//! `scst`: the SCSTallocator paper's Tables 1 to 3 for our versions of its programs. Each is
//! compiled for tracing and recorded once per repetition. Its trace is replayed under each
//! placement on as many nodes as it has threads, with the pages of the paper's shared memory and
//! with the lines of a CPU cache.
//!
//! Equation (5) is checked here: if a placement takes more additional pages than it has buckets,
//! the command fails after the record is written.

mod paper;
mod replay;
mod tables;

use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Result, ensure};
use replay::{LINES, PAGES, Replay, output, replays};
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_workloads::{PARALLEL, Parallel, default_out_dir};
use tables::Tables;

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
