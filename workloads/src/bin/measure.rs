//! Prints the table of ratios: runs each workload's two variants in turn and prints the medians of
//! their times. The `ratio` values in the table come from it.
//!
//! Usage: `measure [RUNS] [NAME…]`

use std::process::{ExitCode, Stdio};
use std::time::Instant;
use sunder_workloads::{Result, Table, Variant, Workload, default_out_dir};

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1).peekable();
    let runs = arguments.peek().and_then(|a| a.parse().ok());
    if runs.is_some() {
        arguments.next();
    }
    match measure(runs.unwrap_or(5), &arguments.collect::<Vec<_>>()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measure: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure(runs: usize, names: &[String]) -> Result<()> {
    let table = Table::load()?;
    println!("seconds: median (lowest) of {runs} runs of each variant in turn");
    println!(
        "{:<22} {:>7} {:>15} {:>15} {:>6} {:>6} {:>6}",
        "workload", "threads", "shared", "fixed", "ratio", "lowest", "table"
    );
    for name in names {
        table.get(name)?;
    }
    for workload in &table.workloads {
        if names.is_empty() || names.contains(&workload.name) {
            print_ratio(workload, runs.max(1))?;
        }
    }
    Ok(())
}

fn print_ratio(workload: &Workload, runs: usize) -> Result<()> {
    let mut times = [Vec::new(), Vec::new()];
    for _ in 0..runs {
        for (variant, times) in Variant::ALL.into_iter().zip(&mut times) {
            times.push(seconds(workload, variant)?);
        }
    }
    for times in &mut times {
        times.sort_by(f64::total_cmp);
    }
    let [median, lowest] = [runs / 2, 0].map(|i| [times[0][i], times[1][i]]);
    println!(
        "{:<22} {:>7} {:>7.3} ({:.3}) {:>7.3} ({:.3}) {:>6.2} {:>6.2} {:>6.2}",
        workload.name,
        workload.threads,
        median[0],
        lowest[0],
        median[1],
        lowest[1],
        median[0] / median[1],
        lowest[0] / lowest[1],
        workload.ratio
    );
    Ok(())
}

fn seconds(workload: &Workload, variant: Variant) -> Result<f64> {
    let mut command = workload.command(variant, &default_out_dir())?;
    let start = Instant::now();
    let status = command.stdout(Stdio::null()).status();
    let seconds = start.elapsed().as_secs_f64();
    if !status.is_ok_and(|s| s.success()) {
        eprintln!("measure: {} ({}) failed", workload.name, variant.name());
    }
    Ok(seconds)
}
