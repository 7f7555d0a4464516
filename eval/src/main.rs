//! Benchmarks of Sunder: paired runs of the workloads with and without it, and its findings in
//! them. The figures are kept in `eval/runs/`, losses included.

mod all;
mod build_times;
mod callers;
mod chaos;
mod cores;
mod cure;
mod detection;
mod first_stage;
mod fleet;
mod gain;
mod ground_truth;
mod heap;
mod inside;
mod isolate_sampling;
mod limited;
mod measure;
mod mishaps;
mod modes;
mod options;
mod originals;
mod overhead;
mod patch;
mod posix;
mod programs;
mod progress;
mod protect;
mod real;
mod record;
mod remedy;
mod replay;
mod sampling;
mod scst;
mod server_cost;
mod simulate_real;
mod stress;
mod suites;
mod watch_churn;
mod watch_many;
mod watching;

use anyhow::Result;
use clap::{Parser, Subcommand};
use options::Options;
use std::path::PathBuf;

/// Measure Sunder on the workloads and record the figures in eval/runs/.
#[derive(Debug, Parser)]
#[command(name = "sunder-eval")]
struct Cli {
    #[command(subcommand)]
    command: Command,
    /// Which programs with known sharing are measured
    #[arg(long, global = true, value_enum, default_value = "workloads")]
    set: options::Set,
    /// Only workloads whose name contains this; for build-times and suite several, separated by commas
    #[arg(long, global = true, default_value = "")]
    only: String,
    /// With how many threads each, separated by commas; if not given, as many as the table says (mostly 2)
    #[arg(long, global = true, value_delimiter = ',')]
    threads: Vec<u32>,
    /// Runs of each variant; if not given 5, 3 for ground-truth, replay and build-times, 1 for scst, suite and
    /// simulate-real, 1,000 for stress, 20 for chaos
    #[arg(long, global = true)]
    repetitions: Option<u32>,
    /// The folder for records; eval/runs if not given
    #[arg(long, global = true, value_name = "DIR")]
    out: Option<PathBuf>,
    /// How many times the size of the tests, which run for about half a second; 4 if
    /// not given, 1 for ground-truth, replay and simulate-real
    #[arg(long, global = true)]
    scale: Option<u64>,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Time and memory of every workload natively and under detect, in turn
    Overhead {
        /// Make each program work so long that it takes about this many seconds
        #[arg(long)]
        seconds: Option<f64>,
    },
    /// What is found: SHERIFF's Tables 1 and 2 for our workloads
    Detection,
    /// What `detect` says that a fix gains, beside what the fixed variants gain
    Gain {
        /// With `detect --measure`
        #[arg(long)]
        measure: bool,
    },
    /// What `detect` on two CPUs says that a fix gains on 16, beside what it gains there
    Cores {
        /// Make each program work so long that it takes about this many seconds on all CPUs
        #[arg(long, default_value_t = 0.8)]
        seconds: f64,
    },
    /// What `sunder patch` makes of each result, beside the fix by hand
    Patch(patch::What),
    /// Other sampling frequencies: SHERIFF's Figure 9 and Table 5
    Sampling,
    /// The observer that compares pages, at SHERIFF's intervals: its Figure 9 and Table 5
    IsolateSampling,
    /// Real programs of the distribution: same output, cost, and what is found
    Real,
    /// The detector's precision and recall against replayed traces
    GroundTruth,
    /// How fast traces are replayed, by length, nodes and lines
    Replay,
    /// Workloads under `sunder repair`, as they are, and fixed by hand
    Repair {
        /// Make each program work so long that it takes about this many seconds
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// How far a program is over time under `sunder repair`, and with more threads:
    /// Plastic's Figure 9 and the thesis' Figure 5.4
    RepairProgress,
    /// What a move costs a thread that calls the same code with other data: Plastic's section 6.1
    RepairCallers,
    /// How well turns of threads in samples tell programs that share falsely from others, in place of
    /// counters: the thesis' Figures 4.2 and 5.1
    FirstStage {
        /// Make each program work so long that it takes about this many seconds
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
    },
    /// The same under `sunder protect`, live and with a saved result, and under `detect` by
    /// isolation: SHERIFF's Tables 3 and 4, Figures 7 and 8
    Protect {
        /// Make each program work so long that it takes about this many seconds
        #[arg(long, default_value_t = 2.0)]
        seconds: f64,
    },
    /// Programs under `sunder repair`, `sunder protect` and `sunder cure`, and fixed by hand
    Cure {
        /// Make each program work so long that it takes about this many seconds
        #[arg(long, default_value_t = 10.0)]
        seconds: f64,
    },
    /// Locks, allocations, threads and their ends under `sunder protect`, again and again
    Stress,
    /// Random pages of workloads and real programs moved at random under `sunder repair`
    Chaos,
    /// The tool is killed at any instant: the program ends as natively, and nothing is left behind
    Kills(mishaps::What),
    /// The tool's system calls fail, or memory, descriptors, space or /proc are missing
    Faults(mishaps::What),
    /// The open POSIX test suite natively and under every command that starts a program
    Posix(posix::What),
    /// The own test suite of a runtime or server, natively and under every command
    Suite(suites::What),
    /// The programs of Phoenix, PARSEC and Splash-3 from their checkouts, natively, fixed, and under every
    /// command
    Originals(originals::What),
    /// The live heap beside others on the usual allocator loops
    Heap,
    /// What `sunder watch` and `sunder attach` cost Redis: throughput and latency, beside undisturbed runs
    ServerCost(server_cost::What),
    /// Does a watch grow while processes start and end, and beside very many of them?
    WatchChurn(watch_churn::What),
    /// `sunder watch` on a machine with 50 processes, of which three share falsely: found, and at what cost?
    WatchMany(watch_many::What),
    /// `sunder fleet report` on the records of many machines; 3 runs if not given
    Fleet(fleet::What),
    /// How long this workspace takes to build and to test in an empty folder; 3 runs if not
    /// given
    BuildTimes,
    /// Real programs recorded under the emulator, replayed on lines and pages, and what-if
    SimulateReal,
    /// Every table and figure of the papers in one go, into one folder; may be stopped and started again
    All(all::What),
    /// Where objects lie and what it saves: SCSTallocator's Tables 1 to 3, with 16 threads and nodes if
    /// not given
    Scst,
}

fn main() -> Result<()> {
    let cli = Cli::parse();
    if let Some(folder) = cli.out {
        record::keep_in(folder);
    }
    let (repetitions, scale) = match cli.command {
        Command::Scst | Command::Suite(_) => (1, 1),
        Command::GroundTruth | Command::Replay | Command::BuildTimes | Command::Fleet(_) => (3, 1),
        Command::SimulateReal => (1, 1),
        Command::Stress => (1000, 1),
        Command::Chaos => (20, 1),
        _ => (5, 4),
    };
    let options = Options {
        set: cli.set,
        only: cli.only,
        threads: cli.threads,
        repetitions: cli.repetitions.unwrap_or(repetitions).max(1),
        scale: cli.scale.unwrap_or(scale).max(1),
    };
    match cli.command {
        Command::Overhead { seconds } => overhead::run(&options, seconds),
        Command::Detection => detection::run(&options),
        Command::Gain { measure } => gain::run(&options, measure),
        Command::Cores { seconds } => cores::run(&options, seconds),
        Command::Patch(what) => patch::run(&what, &options),
        Command::Sampling => sampling::run(&options),
        Command::IsolateSampling => isolate_sampling::run(&options),
        Command::Real => real::run(&options),
        Command::Replay => replay::run(&options),
        Command::Kills(what) => mishaps::run(mishaps::Kind::Kills, &what, &options),
        Command::Faults(what) => mishaps::run(mishaps::Kind::Faults, &what, &options),
        Command::Posix(what) => posix::run(&what, &options),
        Command::Suite(what) => suites::run(&what, &options),
        Command::Originals(what) => originals::run(&what, &options),
        Command::Heap => heap::run(&options),
        Command::Repair { seconds } => remedy::run(&options, seconds),
        Command::RepairProgress => {
            let cpus = || std::thread::available_parallelism().map_or(1, usize::from);
            let most = options.threads.iter().max().map(|&most| most as usize);
            progress::run(&options, most.unwrap_or_else(cpus))
        }
        Command::RepairCallers => callers::run(&options),
        Command::FirstStage { seconds } => first_stage::run(&options, seconds),
        Command::Protect { seconds } => protect::run(&options, seconds),
        Command::Cure { seconds } => cure::run(&options, seconds),
        Command::Stress => stress::run(&options),
        Command::Chaos => chaos::run(&options),
        Command::BuildTimes => build_times::run(&options),
        Command::ServerCost(what) => server_cost::run(&what, &options),
        Command::WatchMany(what) => watch_many::run(&what, &options),
        Command::WatchChurn(what) => watch_churn::run(&what),
        Command::Fleet(what) => fleet::run(&what, &options),
        Command::SimulateReal => simulate_real::run(&options),
        Command::GroundTruth => ground_truth::run(&options),
        Command::All(what) => all::run(&what, &options),
        Command::Scst => scst::run(&options, options.threads.first().copied().unwrap_or(16)),
    }
}
