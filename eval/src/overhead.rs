//! `overhead`: the cost of `detect` at its default settings. Native and observed runs take turns,
//! so that a slow phase of the machine affects both.

use crate::measure::{Measurement, median, quantile, run as measure};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Result, ensure};
use std::fmt::Write as _;

/// The measurements of one program.
struct Row {
    /// Ratios of each pair of runs, in order: wall time, the program's own CPU time, and CPU time
    /// with the tool's.
    wall: Vec<f64>,
    own: Vec<f64>,
    cpu: Vec<f64>,
}

impl Row {
    fn of(native: &[Measurement], detected: &[Measurement]) -> Self {
        let ratios = |of: fn(&Measurement, &Measurement) -> f64| {
            native
                .iter()
                .zip(detected)
                .map(|(n, d)| of(n, d))
                .collect::<Vec<f64>>()
        };
        Self {
            wall: ratios(|n, d| d.wall / n.wall),
            own: ratios(|n, d| d.children_cpu() / n.cpu),
            cpu: ratios(|n, d| d.cpu / n.cpu),
        }
    }
}

/// Median and quartiles: half of the pairs lie between these.
fn spread(ratios: &[f64]) -> String {
    format!(
        "{:.3} ({:.3} to {:.3})",
        median(ratios),
        quantile(ratios, 0.25),
        quantile(ratios, 0.75)
    )
}

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options, seconds: Option<f64>) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut targets: Vec<(programs::Target, Option<u64>)> = programs::workloads(options)?
        .into_iter()
        .map(|(_, _, target)| (target, None))
        .collect();
    let allocating = programs::allocating(options)?;
    targets.extend(allocating.into_iter().map(|(t, pairs)| (t, Some(pairs))));
    let mut record = Record::new(
        "overhead",
        "Wall time, CPU time and peak memory of every workload natively and under `sunder detect` \
         at its default settings. Times under detect are of the whole command: start, program, \
         naming and report. CPU time is told apart: the observed program's own, and the tool's \
         process. Ratios are of pairs of runs, one after the other; medians, and in brackets the \
         quartiles, between which half of the pairs lie. Memory is the largest of any one process.",
        options.repetitions,
        &[
            "workload",
            "variant",
            "mode",
            "run",
            "wall_s",
            "cpu_s",
            "tool_cpu_s",
            "peak_kib",
        ],
    )?;
    let mut table = String::from(
        "| workload | variant | native s | detect s | wall | program's CPU | all CPU | tool's CPU s \
         | peak MiB native | detect |\n|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let start = start_up(&sunder, options)?;
    let (mut walls, mut owns, mut noise) = (Vec::new(), Vec::new(), Vec::new());
    for (target, pairs) in &mut targets {
        let times = seconds.map_or(Ok(1), |wanted| lengthen(target, wanted))?;
        let pairs = pairs.map(|pairs| pairs * times);
        let (native, detected) = pairs_of_runs(target, &sunder, options, &mut record)?;
        let row = Row::of(&native, &detected);
        let of = |all: &[Measurement], f: fn(&Measurement) -> f64| {
            median(&all.iter().map(f).collect::<Vec<_>>())
        };
        let native_s = of(&native, |m| m.wall);
        writeln!(
            table,
            "| {}{} | {} | {native_s:.3} | {:.3} | {} | {} | {} | {:.3} | {:.1} | {:.1} |",
            target.name,
            pairs.map_or_else(String::new, |n| format!(
                " ({:.0} M pairs/s)",
                n as f64 / native_s / 1e6
            )),
            target.variant,
            of(&detected, |m| m.wall),
            spread(&row.wall),
            spread(&row.own),
            spread(&row.cpu),
            of(&detected, |m| m.own_cpu),
            of(&native, |m| m.peak_kib as f64) / 1024.0,
            of(&detected, |m| m.peak_kib as f64) / 1024.0,
        )?;
        println!("{} {}: {}", target.name, target.variant, spread(&row.wall));
        walls.push(median(&row.wall));
        owns.push(median(&row.own));
        noise.extend(native.windows(2).map(|w| w[1].wall / w[0].wall));
    }
    let worst = |all: &[f64]| all.iter().copied().fold(0.0, f64::max);
    record.finish(&format!(
        "Median ratio of wall time {:.3}, worst {:.3}; of the program's own CPU time {:.3}, worst \
         {:.3}; over {} programs. Wanted: 1.01 and 1.05; malloc_steady 1.10. malloc_churn does \
         nothing but allocate and has no target. {start} {}\n\n{table}",
        median(&walls),
        worst(&walls),
        median(&owns),
        worst(&owns),
        walls.len(),
        noise_of(&noise)
    ))
}

/// The spread of runs of the same program without any difference between them.
fn noise_of(ratios: &[f64]) -> String {
    if ratios.is_empty() {
        return String::new();
    }
    format!(
        "Noise: of two native runs of a program, one after the other, the second takes {:.3} of \
         the first in the median, and {:.2} to {:.2} in eight of ten.",
        median(ratios),
        quantile(ratios, 0.1),
        quantile(ratios, 0.9)
    )
}

/// Makes `target` take about `wanted` seconds; the factor by which its work grows.
///
/// # Errors
/// If it can't be run.
pub fn lengthen(target: &mut programs::Target, wanted: f64) -> Result<u64> {
    let once = measure(&mut target.native())?.wall;
    let mut probe = target.clone();
    probe.longer(PROBE)?;
    let probed = measure(&mut probe.native())?.wall;
    let times = times_for(wanted, once, probed);
    target.longer(times)?;
    Ok(times)
}

/// The factor of the probing run's size.
const PROBE: u64 = 3;

/// By which factor the work must grow so that a program takes `wanted` seconds, if it takes `once`
/// now and `probed` for [`PROBE`] times the size. Time is taken to grow as a power of the size, as
/// for the product of two matrices by the cube.
fn times_for(wanted: f64, once: f64, probed: f64) -> u64 {
    let growth = (probed / once.max(1e-3)).ln() / (PROBE as f64).ln();
    // A program that prepares much and works little seems not to grow at all.
    let growth = growth.clamp(1.0, 4.0);
    let times = PROBE as f64 * (wanted / probed.max(1e-3)).powf(1.0 / growth);
    times.round().clamp(1.0, 1000.0) as u64
}

/// The time of the command for a program that does nothing, which is part of every short run.
fn start_up(sunder: &std::path::Path, options: &Options) -> Result<String> {
    let nothing = || std::process::Command::new("true");
    let mut walls = (Vec::new(), Vec::new());
    for _ in 0..options.repetitions.max(5) {
        walls.0.push(measure(&mut nothing())?.wall);
        let mut detect = std::process::Command::new(sunder);
        detect.args(["detect", "--quiet", "--", "true"]);
        walls.1.push(measure(&mut detect)?.wall);
    }
    Ok(format!(
        "A program that does nothing takes {:.1} ms, {:.1} ms with the command around it.",
        median(&walls.0) * 1e3,
        median(&walls.1) * 1e3
    ))
}

/// Runs `target` natively and observed in turn.
fn pairs_of_runs(
    target: &programs::Target,
    sunder: &std::path::Path,
    options: &Options,
    record: &mut Record,
) -> Result<(Vec<Measurement>, Vec<Measurement>)> {
    let (mut native, mut detected) = (Vec::new(), Vec::new());
    for i in 0..options.repetitions {
        for (mode, seen) in [("native", &mut native), ("detect", &mut detected)] {
            let mut command = if mode == "native" {
                target.native()
            } else {
                target.detected(sunder, &["--quiet"])
            };
            let m = measure(&mut command)?;
            ensure!(m.status == 0, "{} failed: {}", target.name, m.status);
            let tool = if mode == "native" { 0.0 } else { m.own_cpu };
            record.row(&[
                target.name.clone(),
                target.variant.into(),
                mode.into(),
                i.to_string(),
                format!("{:.4}", m.wall),
                format!("{:.4}", m.cpu),
                format!("{tool:.4}"),
                m.peak_kib.to_string(),
            ])?;
            seen.push(m);
        }
    }
    Ok((native, detected))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_whose_time_grows_as_the_cube_is_not_made_too_long() {
        // 0.1 s, and 2.7 s for three times the size: 3.1 times the size for 3 s.
        assert_eq!(times_for(3.0, 0.1, 2.7), 3);
        // 30 times as much work as 0.1 s.
        assert_eq!(times_for(3.0, 0.1, 0.3), 30);
        // Preparing takes 0.5 s.
        assert_eq!(times_for(3.0, 0.501, 0.503), 18);
    }
}
