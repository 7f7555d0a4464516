//! `overhead`: what `detect` at its default settings costs. Native and observed
//! runs take turns, so that a slow phase of the machine hits both.

use crate::measure::{Measurement, median, run as measure};
use crate::record::Record;
use crate::{Options, programs};
use anyhow::{Result, ensure};
use std::fmt::Write as _;

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut targets: Vec<programs::Target> = programs::workloads(options)?
        .into_iter()
        .map(|(_, _, target)| target)
        .collect();
    if "malloc_churn".contains(&options.only) {
        targets.push(programs::malloc_churn(options)?);
    }
    let mut record = Record::new(
        "overhead",
        "Wall time, CPU time and peak memory of every workload natively and under `sunder detect` \
         at its default settings. Times under detect are of the whole command: start, program, \
         naming and report. Memory is the largest of any one process.",
        options.repetitions,
        &[
            "workload", "variant", "mode", "run", "wall_s", "cpu_s", "peak_kib",
        ],
    )?;
    let mut table = String::from(
        "| workload | variant | native s | detect s | wall | CPU | peak MiB native | detect |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut walls = Vec::new();
    for target in &targets {
        let mut native: Vec<Measurement> = Vec::new();
        let mut detected: Vec<Measurement> = Vec::new();
        for i in 0..options.repetitions {
            for (mode, seen) in [("native", &mut native), ("detect", &mut detected)] {
                let mut command = if mode == "native" {
                    target.native()
                } else {
                    target.detected(&sunder, &["--quiet"])
                };
                let m = measure(&mut command)?;
                ensure!(m.status == 0, "{} failed: {}", target.name, m.status);
                record.row(&[
                    target.name.clone(),
                    target.variant.into(),
                    mode.into(),
                    i.to_string(),
                    format!("{:.4}", m.wall),
                    format!("{:.4}", m.cpu),
                    m.peak_kib.to_string(),
                ])?;
                seen.push(m);
            }
        }
        let of = |all: &[Measurement], f: fn(&Measurement) -> f64| {
            median(&all.iter().map(f).collect::<Vec<_>>())
        };
        let wall = of(&detected, |m| m.wall) / of(&native, |m| m.wall);
        let cpu = of(&detected, |m| m.cpu) / of(&native, |m| m.cpu);
        walls.push(wall);
        writeln!(
            table,
            "| {} | {} | {:.3} | {:.3} | {wall:.3} | {cpu:.3} | {:.1} | {:.1} |",
            target.name,
            target.variant,
            of(&native, |m| m.wall),
            of(&detected, |m| m.wall),
            of(&native, |m| m.peak_kib as f64) / 1024.0,
            of(&detected, |m| m.peak_kib as f64) / 1024.0,
        )?;
        println!("{} {}: {wall:.3}", target.name, target.variant);
    }
    let worst = walls.iter().copied().fold(0.0, f64::max);
    record.finish(&format!(
        "Median ratio of wall time {:.3}, worst {worst:.3}, over {} programs. Wanted: 1.01 and \
         1.05; malloc_churn 1.10.\n\n{table}",
        median(&walls),
        walls.len()
    ))
}
