//! `replay`: the speed of replaying traces, and how the time grows with the length of the trace,
//! the number of nodes and the accessed lines.

use crate::measure::{median, run as measure};
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::Findings;
use sunder_workloads::default_out_dir;

/// One trace and the machine that it is replayed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Case {
    /// The parameter that grows in this row.
    grows: &'static str,
    threads: u64,
    lines: u64,
    /// The number of accesses, in thousands.
    thousands: u64,
    /// Whether the first thread writes the memory first, so that all lines move between nodes and
    /// not just one.
    handed: bool,
}

const BASE: Case = Case {
    grows: "",
    threads: 8,
    lines: 1 << 12,
    thousands: 10_000,
    handed: false,
};

/// The rows: one parameter grows from the base case, the others stay.
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
    let handed = [false, true].map(|handed| Case {
        grows: "lines that move",
        handed,
        ..base
    });
    [&length[..], &nodes, &lines, &handed].concat()
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
         both passes and the report) on traces of eval/programs/touch.c: threads that go over \
         lines of their own and add to a common counter once in 64 accesses. The speed of a core \
         is accesses by CPU time; the first pass is that of the simulator, read by a thread of \
         its own. At the end `sunder what-if` with one thread for its replays and with one for \
         each CPU.",
        options.repetitions,
        &[
            "grows",
            "threads",
            "lines",
            "moved",
            "order",
            "run",
            "accesses",
            "wall_s",
            "cpu_s",
            "first_pass_s",
            "peak_kib",
        ],
    )?;
    let mut table = String::from(
        "| what grows | nodes | lines | accesses | lines that move | order | seconds | CPU seconds | \
         million accesses/s and core | first pass, million accesses/s | peak MiB |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
    );
    let program = compile(&sunder)?;
    let wanted = |case: &Case| case.grows.contains(&options.only);
    for case in cases(options.scale).into_iter().filter(wanted) {
        let trace = trace(&sunder, &program, case)?;
        for order in ["parallel", "recorded"] {
            let row = Row::measure(&sunder, &trace, case, order, options, &mut record)?;
            writeln!(table, "{}", row.text(case, order))?;
            println!("{} {}: {:.2} s", case.grows, case.threads, row.wall);
        }
        std::fs::remove_file(&trace)?;
    }
    let what_if = side_by_side(&sunder, &program, options, &mut record)?;
    record.finish(&format!(
        "Wanted: 50 million accesses a second and core with 8 nodes.\n\n{table}\n{what_if}"
    ))
}

/// The medians of one case.
struct Row {
    accesses: u64,
    wall: f64,
    cpu: f64,
    first: f64,
    peak_kib: u64,
}

impl Row {
    fn measure(
        sunder: &Path,
        trace: &Path,
        case: Case,
        order: &str,
        options: &Options,
        record: &mut Record,
    ) -> Result<Self> {
        let (mut walls, mut cpus, mut firsts) = (Vec::new(), Vec::new(), Vec::new());
        let (mut peak_kib, mut accesses) = (0, 0);
        for i in 0..options.repetitions {
            let result = trace.with_extension("json");
            let mut command = Command::new(sunder);
            command.args(["simulate", "--quiet", "--order", order, "-o"]);
            let m = measure(command.arg(&result).arg(trace))?;
            ensure!(
                m.status == 0,
                "simulate ended with wait status {}",
                m.status
            );
            let seen = Findings::open(&result)?;
            let simulation = seen.simulation.context("no simulation")?;
            accesses = simulation.accesses;
            record.row(&[
                case.grows.into(),
                case.threads.to_string(),
                case.lines.to_string(),
                if case.handed { "all" } else { "one" }.into(),
                order.into(),
                i.to_string(),
                accesses.to_string(),
                format!("{:.4}", m.wall),
                format!("{:.4}", m.cpu),
                format!("{:.4}", simulation.seconds),
                m.peak_kib.to_string(),
            ])?;
            walls.push(m.wall);
            cpus.push(m.cpu);
            firsts.push(simulation.seconds);
            peak_kib = peak_kib.max(m.peak_kib);
        }
        Ok(Self {
            accesses,
            wall: median(&walls),
            cpu: median(&cpus),
            first: median(&firsts),
            peak_kib,
        })
    }

    fn text(&self, case: Case, order: &str) -> String {
        let millions = self.accesses as f64 / 1e6;
        format!(
            "| {} | {} | {} | {} | {} | {order} | {:.2} | {:.2} | {:.1} | {:.1} | {:.1} |",
            case.grows,
            case.threads,
            case.lines,
            self.accesses,
            if case.handed { "all" } else { "one" },
            self.wall,
            self.cpu,
            millions / self.cpu,
            millions / self.first,
            self.peak_kib as f64 / 1024.0
        )
    }
}

/// Replays of several configurations, one after the other and side by side.
fn side_by_side(
    sunder: &Path,
    program: &Path,
    options: &Options,
    record: &mut Record,
) -> Result<String> {
    let case = Case {
        grows: "processors",
        handed: true,
        thousands: BASE.thousands * options.scale,
        ..BASE
    };
    let trace = trace(sunder, program, case)?;
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let mut table = String::from(
        "| `what-if` on threads | replays | seconds for them | CPU seconds of all |\n|---|---|---|---|\n",
    );
    let mut counts = vec![1, all];
    counts.dedup();
    for threads in counts {
        let (mut seconds, mut cpus, mut replays) = (Vec::new(), Vec::new(), 0);
        for i in 0..options.repetitions {
            let result = trace.with_extension("json");
            let mut command = Command::new(sunder);
            command.env("RAYON_NUM_THREADS", threads.to_string());
            command.args(["what-if", "--quiet", "-o"]);
            let m = measure(command.arg(&result).arg(&trace))?;
            ensure!(m.status == 0, "what-if ended with wait status {}", m.status);
            let seen = Findings::open(&result)?;
            let what_if = seen.what_if.context("nothing was tried")?;
            record.row(&[
                format!("what-if on {threads}"),
                case.threads.to_string(),
                case.lines.to_string(),
                "all".into(),
                "parallel".into(),
                i.to_string(),
                String::new(),
                format!("{:.4}", m.wall),
                format!("{:.4}", m.cpu),
                format!("{:.4}", what_if.seconds),
                m.peak_kib.to_string(),
            ])?;
            seconds.push(what_if.seconds);
            cpus.push(m.cpu);
            replays = what_if.replays;
        }
        writeln!(
            table,
            "| {threads} | {replays} | {:.2} | {:.2} |",
            median(&seconds),
            median(&cpus)
        )?;
    }
    std::fs::remove_file(&trace)?;
    Ok(table)
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
        .args(case.handed.then_some("handed"))
        .output()?;
    ensure!(done.status.success(), "touch ended with {}", done.status);
    Ok(trace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_of_a_series_increases_one_parameter() {
        for pair in cases(2).windows(2).filter(|w| w[0].grows == w[1].grows) {
            let (a, b) = (pair[0], pair[1]);
            let grown = [
                ("nodes", a.threads < b.threads),
                ("lines", a.lines < b.lines),
                ("length", a.thousands < b.thousands),
                ("lines that move", a.handed != b.handed),
            ];
            assert!(grown.iter().all(|(what, grew)| *grew == (*what == a.grows)));
        }
    }
}
