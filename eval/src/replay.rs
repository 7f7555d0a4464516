//! `replay`: how fast traces are replayed, and how the time grows with the length of
//! the trace, the number of nodes and the lines that are touched.

use crate::measure::{median, run as measure};
use crate::record::Record;
use crate::{Options, programs};
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::Findings;
use sunder_workloads::default_out_dir;

/// One trace and the machine that it is replayed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    /// What grows in this row.
    grows: &'static str,
    threads: u64,
    lines: u64,
    /// Accesses, in thousands.
    thousands: u64,
}

const BASE: Case = Case {
    grows: "",
    threads: 8,
    lines: 1 << 12,
    thousands: 10_000,
};

/// The rows: from the base one thing grows, the others stay.
fn cases(scale: u64) -> Vec<Case> {
    let base = Case {
        thousands: BASE.thousands * scale,
        ..BASE
    };
    let length = [1, 2, 4].map(|times| Case {
        grows: "length",
        thousands: base.thousands * times,
        ..base
    });
    let nodes = [1, 2, 4, 8, 16].map(|threads| Case {
        grows: "nodes",
        threads,
        ..base
    });
    let lines = [8, 12, 16, 20].map(|bits| Case {
        grows: "lines",
        lines: 1 << bits,
        ..base
    });
    [&length[..], &nodes, &lines].concat()
}

/// Runs the benchmark.
///
/// # Errors
/// If a program fails or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let mut record = Record::new(
        "replay",
        "Time of `sunder simulate` (64-byte lines, MESI, infinite caches, a node for each thread; \
         both passes and the report, on one CPU) on traces of eval/programs/touch.c: threads that \
         go over lines of their own and add to a common counter once in 64 accesses.",
        options.repetitions,
        &[
            "grows", "threads", "lines", "order", "run", "accesses", "wall_s", "peak_kib",
        ],
    )?;
    let mut table = String::from(
        "| what grows | nodes | lines | accesses | order | seconds | million accesses/s | peak MiB \
         |\n|---|---|---|---|---|---|---|---|\n",
    );
    let program = compile(&sunder)?;
    for case in cases(options.scale) {
        let trace = trace(&sunder, &program, case)?;
        for order in ["parallel", "recorded"] {
            let (mut walls, mut peak, mut accesses) = (Vec::new(), 0, 0);
            for i in 0..options.repetitions {
                let result = trace.with_extension("json");
                let mut command = Command::new(&sunder);
                command.args(["simulate", "--quiet", "--order", order, "-o"]);
                let m = measure(command.arg(&result).arg(&trace))?;
                ensure!(
                    m.status == 0,
                    "simulate ended with wait status {}",
                    m.status
                );
                let seen = Findings::open(&result)?;
                accesses = seen.simulation.context("no simulation")?.accesses;
                record.row(&[
                    case.grows.into(),
                    case.threads.to_string(),
                    case.lines.to_string(),
                    order.into(),
                    i.to_string(),
                    accesses.to_string(),
                    format!("{:.4}", m.wall),
                    m.peak_kib.to_string(),
                ])?;
                walls.push(m.wall);
                peak = peak.max(m.peak_kib);
            }
            let seconds = median(&walls);
            writeln!(
                table,
                "| {} | {} | {} | {accesses} | {order} | {seconds:.2} | {:.1} | {:.1} |",
                case.grows,
                case.threads,
                case.lines,
                accesses as f64 / seconds / 1e6,
                peak as f64 / 1024.0
            )?;
            println!("{} {}: {seconds:.2} s", case.grows, case.threads);
        }
        std::fs::remove_file(&trace)?;
    }
    record.finish(&format!(
        "Wanted: 50 million accesses a second and core with 8 nodes.\n\n{table}"
    ))
}

fn compile(sunder: &Path) -> Result<PathBuf> {
    let folder = default_out_dir();
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("touch.traced");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("programs/touch.c");
    let built = Command::new(sunder)
        .args(["cc", "-O2", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status()?;
    ensure!(built.success(), "touch.c does not build");
    Ok(program)
}

fn trace(sunder: &Path, program: &Path, case: Case) -> Result<PathBuf> {
    let trace = program.with_extension("trace");
    let done = Command::new(sunder)
        .args(["trace", "--quiet", "-o"])
        .arg(&trace)
        .arg("--")
        .arg(program)
        .args([case.threads, case.lines, case.thousands * 1000].map(|n| n.to_string()))
        .output()?;
    ensure!(done.status.success(), "touch ended with {}", done.status);
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_grows_at_a_time() {
        for pair in cases(2).windows(2).filter(|w| w[0].grows == w[1].grows) {
            let (a, b) = (pair[0], pair[1]);
            let grown = [
                ("nodes", a.threads < b.threads),
                ("lines", a.lines < b.lines),
                ("length", a.thousands < b.thousands),
            ];
            assert!(grown.iter().all(|(what, grew)| *grew == (*what == a.grows)));
        }
    }
}
