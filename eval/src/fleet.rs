//! `fleet`: how long `sunder fleet report` takes for the records of many machines, and how its memory
//! grows with the number of machines and of records.

use crate::measure::{median, run as measure};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use clap::Args;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::Path;
use std::process::Command;
use sunder_findings::{Finding, Happening, examples as findings};
use sunder_fleet::examples::{DAY, SECOND, START, Told, finding, looked, present, status};
use sunder_workloads::default_out_dir;

/// How much is made.
#[derive(Clone, Copy, Debug, Args)]
pub struct What {
    /// Machines of the largest fleet
    #[arg(long, default_value_t = 1000)]
    hosts: u64,
    /// Statuses of each machine, a minute apart
    #[arg(long, default_value_t = 100)]
    records: u64,
    /// Objects that are there on each machine
    #[arg(long, default_value_t = 10)]
    findings: u32,
}

/// Runs the benchmark.
///
/// # Errors
/// If a file can't be written or the report fails.
pub fn run(what: &What, options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        "fleet",
        "Time and memory of `sunder fleet report FOLDER -o page.html`. Each machine has a file: the \
         records of its findings, which appear and go, and statuses a minute apart, in all of which \
         these findings are listed. All machines have the same objects; half of them get another \
         build in the middle.",
        options.repetitions,
        &[
            "hosts", "statuses", "run", "bytes", "wall_s", "cpu_s", "peak_kib",
        ],
    )?;
    let mut table = String::from(
        "| machines | statuses of each | MB | seconds | CPU seconds | peak MiB |\n|---|---|---|---|---|---|\n",
    );
    let cases = [
        (what.hosts / 100, what.records),
        (what.hosts / 10, what.records),
        (what.hosts, what.records / 10),
        (what.hosts, what.records),
    ];
    let folder = default_out_dir().join("fleet");
    for (hosts, statuses) in cases {
        let (hosts, statuses) = (hosts.max(1), statuses.max(2));
        let bytes = make(&folder, hosts, statuses, what.findings)?;
        let (mut walls, mut cpus, mut peaks) = (Vec::new(), Vec::new(), Vec::new());
        for repetition in 0..options.repetitions {
            let page = folder.with_extension("html");
            let seen = measure(
                Command::new(&sunder)
                    .args(["fleet", "report"])
                    .arg(&folder)
                    .arg("-o")
                    .arg(&page),
            )?;
            ensure!(seen.status == 0, "the report failed: {}", seen.status);
            record.row(&[
                hosts.to_string(),
                statuses.to_string(),
                repetition.to_string(),
                bytes.to_string(),
                format!("{:.3}", seen.wall),
                format!("{:.3}", seen.cpu),
                seen.peak_kib.to_string(),
            ])?;
            walls.push(seen.wall);
            cpus.push(seen.cpu);
            peaks.push(seen.peak_kib as f64);
        }
        let (wall, cpu, peak) = (median(&walls), median(&cpus), median(&peaks));
        let (mb, mib) = (bytes as f64 / 1e6, peak / 1024.0);
        writeln!(
            table,
            "| {hosts} | {statuses} | {mb:.0} | {wall:.2} | {cpu:.2} | {mib:.0} |"
        )?;
        println!("{hosts} machines, {statuses} statuses: {mb:.0} MB in {wall:.2} s, {mib:.0} MiB");
    }
    fs::remove_dir_all(&folder)?;
    record.finish(&table)
}

/// Objects that differ in their names.
fn objects(count: u32) -> Vec<Finding> {
    let named = |number: u32| {
        let mut one = findings::linear_regression();
        one.object.name = Some(format!("object_{number}"));
        one
    };
    (0..count).map(named).collect()
}

/// Writes the files anew. Returns their bytes.
fn make(folder: &Path, hosts: u64, statuses: u64, count: u32) -> Result<u64> {
    let _ = fs::remove_dir_all(folder);
    fs::create_dir_all(folder)?;
    let objects = objects(count);
    let mut bytes = 0;
    for number in 0..hosts {
        let path = folder.join(format!("host{number}.jsonl"));
        let file =
            File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let mut file = BufWriter::new(file);
        let host: &'static str = Box::leak(format!("host{number}").into_boxed_str());
        for half in 0..2 {
            let begun = START + half * DAY;
            let at = |seconds: u64| Told {
                host,
                time: begun + seconds * SECOND,
                pid: 1000 + half as u32,
                build: Some(if half * (number % 2) == 1 {
                    "bb02"
                } else {
                    "aa01"
                }),
                ..Told::default()
            };
            for one in &objects {
                writeln!(file, "{}", finding(&at(1), Happening::Appeared, 10.0, one))?;
            }
            for minute in 1..=statuses / 2 {
                let told = at(minute * 60);
                let there = objects
                    .iter()
                    .map(|one| present(&told, at(1).time, 10.0, minute as f64, one));
                let looks = vec![looked(&told, at(1).time, minute)];
                writeln!(file, "{}", status(&told, begun, there.collect(), looks))?;
            }
            for one in &objects {
                writeln!(
                    file,
                    "{}",
                    finding(&at(statuses * 60), Happening::Gone, 10.0, one)
                )?;
            }
        }
        file.flush()?;
        bytes += fs::metadata(&path)?.len();
    }
    Ok(bytes)
}
