//! The command line. Definitions only; nothing here acts.

mod remedies;

pub use remedies::{PlacementChoice, Protect, Repair, Run};

use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use sunder_coherence::Caches;
use sunder_protect::observer::SAMPLED;
use sunder_replay::PlacementAsked;
use sunder_replay::simulate::{parse_align, parse_caches, parse_place, parse_placement};

/// Find false sharing in running programs, name the data, and say what to do.
#[derive(Debug, Parser)]
#[command(
    name = "sunder",
    version,
    max_term_width = 100,
    after_help = "Examples:
  sunder demo                                see what it does
  sunder detect -- ./server --threads 8      run a program and report
  sunder attach --pid 4242 --duration 30s    look at a running one
  sunder doctor                              what can be seen on this machine

Exit status: that of the program that was run. Sunder's own: 2 wrong usage,
123 false sharing found with --fail-on, 125 Sunder failed, 126 the program can't
be executed, 127 it was not found."
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a program and report the data that share cache lines
    Detect(Detect),
    /// Look at a running process, or take its falsely shared data apart while it runs
    Attach(Attach),
    /// Analyse a perf.data file
    Import(Import),
    /// Render a saved result again
    Report(Report),
    /// Replay a trace on another machine: which nodes miss, why, and on whose data
    Simulate(Simulate),
    /// Try what takes falsely shared objects apart, on a trace, and rank what it saves
    WhatIf(WhatIf),
    /// Compare two results: what appeared, went away, grew or shrank
    Diff(Diff),
    /// Run a program with an allocator that keeps its objects apart
    Run(Run),
    /// Run a program, and give each thread what it shares falsely for itself while it computes
    Protect(Protect),
    /// Run a program and take falsely shared data apart while it runs
    Repair(Repair),
    /// Say what can be observed on this machine, and how to get more
    Doctor(Doctor),
    /// Build and run a small program with false sharing, and its repaired variant
    Demo(Demo),
    /// Record every memory access of a program, or look at a recording
    Trace(Trace),
    /// Compile and link C for `sunder trace`
    #[command(after_help = "Examples:
  make CC='sunder cc'
  SUNDER_CC=clang sunder cc -O2 -o server server.c")]
    Cc {
        /// What the compiler gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Compile and link C++ for `sunder trace`
    #[command(
        name = "c++",
        after_help = "Examples:
  make CC='sunder cc' CXX='sunder c++'
  SUNDER_CXX=clang++ sunder c++ -O2 -o server server.cpp"
    )]
    Cpp {
        /// What the compiler gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Build Rust programs for `sunder trace`
    #[command(
        after_help = "Everything goes to cargo. Programs come out in target/sunder/x86_64-unknown-linux-gnu.

Examples:
  sunder cargo build --release --bin server
  sunder trace -o server.trace -- target/sunder/x86_64-unknown-linux-gnu/release/server"
    )]
    Cargo {
        /// What cargo gets.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// Print shell completions
    #[command(after_help = "Examples:
  sunder completions bash > ~/.local/share/bash-completion/completions/sunder")]
    Completions {
        /// The shell.
        shell: clap_complete::Shell,
    },
    /// Print the manual page, or write one for every command into a folder
    #[command(after_help = "Examples:
  sunder man | man -l -
  sunder man --directory ~/.local/share/man/man1")]
    Man {
        /// Where to write the pages.
        #[arg(long)]
        directory: Option<PathBuf>,
    },
}

/// `sunder detect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder detect -- ./server --threads 8
  sunder detect --format html -o report.html -- ./server
  sunder detect --format json -o new.json --fail-on false-sharing -- ./bench
  sunder detect --all --words -- ./server

The program's exit status, signals and standard streams are its own; the report
goes to standard error or to the files named with -o.")]
pub struct Detect {
    /// Which observer takes the samples
    #[arg(long, value_enum, default_value_t = ObserverChoice::Auto)]
    pub observer: ObserverChoice,
    /// With --observer isolate: look for shared pages in so many of 1,000 intervals
    #[arg(long, value_name = "INTERVALS", default_value_t = SAMPLED, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sampled: u32,
    /// Follow the processes that the program starts
    #[arg(long)]
    pub follow_children: bool,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// How to report.
    #[command(flatten)]
    pub tell: TellOptions,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// `sunder attach`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder attach --pid $(pidof server)
  sunder attach --pid 4242 --duration 1m --format html -o report.html
  sunder attach --pid 4242 --repair          until Ctrl-C; then all is as it was

With --repair, all threads are stopped for some milliseconds when Sunder comes,
goes, or moves something; what was done is told on standard error.")]
pub struct Attach {
    /// The process
    #[arg(long, short)]
    pub pid: u32,
    /// How long: a number with ms, s or m [default: 10s; with --repair, until Ctrl-C]
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Take falsely shared data apart meanwhile, as `sunder repair` does
    #[arg(long)]
    pub repair: bool,
    /// Only say what would be moved
    #[arg(long, requires = "repair")]
    pub dry_run: bool,
    /// Write the result, with what was done, to this file as JSON
    #[arg(long, value_name = "FILE", requires = "repair")]
    pub report: Option<PathBuf>,
    /// For tests: move random pages at random moments, by this seed, and put them back
    #[arg(
        long,
        value_name = "SEED",
        hide = true,
        requires = "repair",
        conflicts_with = "dry_run"
    )]
    pub chaos: Option<u64>,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// How to report.
    #[command(flatten)]
    pub tell: TellOptions,
}

/// `sunder import`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  perf record -e cpu-clock:u --sample-cpu -d \\
    --user-regs=ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15 -- ./server
  sunder import perf.data
  perf c2c record -- ./server; sunder import perf.data")]
pub struct Import {
    /// The file that perf wrote
    pub file: PathBuf,
    /// Bytes of a cache line of the machine that recorded it
    #[arg(long, value_name = "BYTES", value_parser = parse_line_size)]
    pub line_size: Option<u32>,
    /// How to report.
    #[command(flatten)]
    pub tell: TellOptions,
}

/// `sunder report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder report result.json
  sunder report result.json --format html -o report.html")]
pub struct Report {
    /// A result that was saved with --format json
    pub file: PathBuf,
    /// How to report.
    #[command(flatten)]
    pub tell: TellOptions,
}

/// `sunder simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder simulate app.trace
  sunder simulate app.trace --granule 128 --protocol mesif
  sunder simulate app.trace --caches 48K/12,2M/16
  sunder simulate app.trace --granule 4096 --nodes 16 --protocol msi
  sunder simulate app.trace --placement hoard
  sunder simulate app.trace --placement padded:worker.c:41,make_queue
  sunder simulate app.trace --pad 'struct counter.hits' --align table=128
  sunder simulate app.trace --format json -o result.json

Exit status: 2 wrong usage, 123 false sharing found with --fail-on, 125 a machine
that cannot be, a name that the trace does not have, or a file that is no trace.")]
pub struct Simulate {
    /// A file that sunder trace wrote
    pub file: PathBuf,
    /// Bytes that are kept coherent as a whole: a cache line, or a page
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub granule: u64,
    /// Nodes with caches of their own; one for each thread if not given
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,
    /// How copies are kept coherent
    #[arg(long, value_enum, default_value_t = ProtocolChoice::Mesi)]
    pub protocol: ProtocolChoice,
    /// Private caches of a node: infinite, or bytes and ways of one or two levels
    #[arg(long, value_name = "L1,L2", value_parser = parse_caches)]
    pub caches: Option<Caches>,
    /// In which order the threads' accesses come
    #[arg(long, value_enum, default_value_t = OrderChoice::Parallel)]
    pub order: OrderChoice,
    /// Which thread runs on which node, threads from 1 and nodes from 0
    #[arg(long, value_name = "THREAD:NODE", value_delimiter = ',', value_parser = parse_place)]
    pub map: Vec<(u32, u32)>,
    /// Where heap objects lie: actual (as recorded), glibc, hoard, sized, call-site,
    /// sized-call-site, or padded:CALLSITE,… (blocks from there have lines of their own; a call
    /// site is a function, file:line, or the offset of a return address)
    #[arg(long, value_name = "POLICY", default_value = "actual", value_parser = parse_placement)]
    pub placement: PlacementAsked,
    /// Give a field of all globals and heap objects of a type lines of its own, or with TYPE alone
    /// each of these objects; of arrays, each element; OBJECT[] means the elements of one global, or of
    /// the blocks from one call site
    #[arg(long, value_name = "TYPE.FIELD")]
    pub pad: Vec<String>,
    /// Let a global, or the blocks from a call site, start and end at multiples of so many bytes
    #[arg(long, value_name = "OBJECT=BYTES", value_parser = parse_align)]
    pub align: Vec<(String, u64)>,
    /// Leave out accesses to anything but heap objects
    #[arg(long)]
    pub heap_only: bool,
    /// How to report.
    #[command(flatten)]
    pub tell: TellOptions,
}

/// `sunder what-if`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder what-if app.trace
  sunder what-if app.trace --granule 128
  sunder what-if app.trace -o what-if.html -o what-if.json
  sunder simulate app.trace --pad 'counter.hits'      look at one change more closely

Each change is simulated with all accesses to the lines that it concerns; the time
grows with the trace and the number of changes, and falls with processors.

Exit status: 2 wrong usage, 123 false sharing found with --fail-on, 125 a machine
that cannot be, or a file that is no trace.")]
pub struct WhatIf {
    /// A file that sunder trace wrote
    pub file: PathBuf,
    /// Bytes that are kept coherent as a whole: a cache line, or a page
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub granule: u64,
    /// Nodes with caches of their own; one for each thread if not given
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,
    /// How copies are kept coherent
    #[arg(long, value_enum, default_value_t = ProtocolChoice::Mesi)]
    pub protocol: ProtocolChoice,
    /// In which order the threads' accesses come
    #[arg(long, value_enum, default_value_t = OrderChoice::Parallel)]
    pub order: OrderChoice,
    /// Which thread runs on which node, threads from 1 and nodes from 0
    #[arg(long, value_name = "THREAD:NODE", value_delimiter = ',', value_parser = parse_place)]
    pub map: Vec<(u32, u32)>,
    /// Try changes for so many findings, the dearest first
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub top: usize,
    /// How to report.
    #[command(flatten)]
    pub tell: TellOptions,
}

/// What `--order` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderChoice {
    /// As if each thread had a processor of its own, all of one speed; synchronisation orders them
    Parallel,
    /// As they were recorded, however busy that machine was
    Recorded,
}

/// What `--protocol` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ProtocolChoice {
    /// Copies are read-only or writable, as pages of a shared memory are
    Msi,
    /// A sole clean copy becomes writable in silence
    Mesi,
    /// As mesi, and one of several clean copies answers in memory's place
    Mesif,
}

/// `sunder diff`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder diff main.json branch.json
  sunder diff main.json branch.json --fail-on false-sharing")]
pub struct Diff {
    /// The result to compare with
    pub old: PathBuf,
    /// The new result
    pub new: PathBuf,
    /// Print the comparison as JSON
    #[arg(long)]
    pub json: bool,
    /// Also show what did not change
    #[arg(long)]
    pub all: bool,
    /// Exit with 123 if false sharing appeared or grew
    #[arg(long, value_enum)]
    pub fail_on: Option<FailOn>,
}

/// `sunder doctor`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder doctor
  sunder doctor ./server        also look at a program's debug information")]
pub struct Doctor {
    /// A program whose symbols and debug information to look at
    pub program: Option<PathBuf>,
}

/// `sunder demo`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder demo
  sunder demo --keep ./demo     keep the sources and programs to play with")]
pub struct Demo {
    /// Number of threads
    #[arg(long, default_value_t = 2)]
    pub threads: u32,
    /// Keep sources and programs in this folder
    #[arg(long)]
    pub keep: Option<PathBuf>,
}

/// `sunder trace`.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    after_help = "Examples:
  sunder cc -O2 -g -o server server.c
  sunder trace -o server.trace -- ./server --threads 8
  sunder cargo build --release
  sunder trace -o app.trace -- target/sunder/x86_64-unknown-linux-gnu/release/app
  sunder trace --via emulated -o app.trace -- ./any-program
  sunder trace info server.trace
  sunder trace dump --thread 2 --kind write server.trace"
)]
pub struct Trace {
    /// Look at a recording.
    #[command(subcommand)]
    pub command: Option<TraceCommand>,
    /// Where to write the trace
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// How to record
    #[arg(long, value_enum, default_value_t = Via::Auto)]
    pub via: Via,
    /// No line about the progress, which only a terminal gets anyway
    #[arg(long, short)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What can be done with a recording.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Summarise a trace
    Info {
        /// The trace
        file: PathBuf,
    },
    /// Print the events of a trace in the order of time
    Dump(Dump),
}

/// `sunder trace dump`.
#[derive(Debug, Args)]
pub struct Dump {
    /// The trace
    pub file: PathBuf,
    /// Only of this thread, by its number in the trace; may be given several times
    #[arg(long, value_name = "NUMBER")]
    pub thread: Vec<u32>,
    /// Only of this kind; may be given several times
    #[arg(long, value_enum)]
    pub kind: Vec<DumpKind>,
    /// Only what touches these addresses: START-END, hexadecimal
    #[arg(long, value_name = "START-END", value_parser = parse_range)]
    pub range: Option<(u64, u64)>,
    /// No more than this many
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<u64>,
}

/// What `sunder trace dump --kind` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum DumpKind {
    /// Loads
    Read,
    /// Stores
    Write,
    /// Locked updates
    Atomic,
    /// Allocations and frees
    Heap,
    /// Starts and ends of threads
    Thread,
    /// Synchronisation
    Sync,
    /// Marks
    Mark,
}

/// What `sunder trace --via` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Via {
    /// The way that fits the program
    Auto,
    /// By the hooks of a program that was built with `sunder cc`
    Instrumented,
    /// Under an emulator
    Emulated,
}

/// How to observe.
#[derive(Debug, Args, Clone)]
pub struct ObserveOptions {
    /// Samples a second and thread; default: high at the start, lower later
    #[arg(long, value_name = "HZ", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub frequency: Option<u32>,
    /// Bytes of a cache line; default: read from the machine
    #[arg(long, value_name = "BYTES", value_parser = parse_line_size)]
    pub line_size: Option<u32>,
    /// Share of the program's time that hardware watchpoints may take, in percent; 0 for none
    #[arg(long, value_name = "PERCENT", default_value_t = 0.5, value_parser = parse_percent)]
    pub watch_budget: f64,
}

/// How to report.
#[derive(Debug, Args, Clone)]
pub struct TellOptions {
    /// The form of the report; may be given several times, each with its own -o
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Vec<Format>,
    /// Where to write the report of the --format at the same place; without --format, in the form
    /// that the name's ending says (.html, .sarif, .txt, else JSON); - is standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Vec<PathBuf>,
    /// Also show true sharing and what lies below the threshold
    #[arg(long)]
    pub all: bool,
    /// Leave out what costs less than this share of the threads' time
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub threshold: Option<f64>,
    /// Show every word of a line with its counts and threads
    #[arg(long)]
    pub words: bool,
    /// Exit with 123 if false sharing above the threshold was found
    #[arg(long, value_enum)]
    pub fail_on: Option<FailOn>,
    /// No report on standard error; files are still written
    #[arg(long, short)]
    pub quiet: bool,
}

/// What `--observer` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ObserverChoice {
    /// The best that this machine offers
    Auto,
    /// Samples from the kernel's perf interface
    Perf,
    /// Samples from timers inside the program, where perf is refused
    Timer,
    /// Memory events of the hardware's performance counters
    Pmu,
    /// What threads change while each computes on pages of its own (`detect` only): exact, but
    /// writes alone, and slower
    Isolate,
}

/// What `--format` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Format {
    /// For people, in a terminal
    Text,
    /// The complete result, for `sunder report`, `sunder diff` and other tools
    Json,
    /// One self-contained page
    Html,
    /// For code-scanning viewers
    Sarif,
}

/// What `--fail-on` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FailOn {
    /// Any false or mixed sharing above the threshold
    FalseSharing,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("'{text}' is no duration; write 500ms, 10s or 2m");
    let split = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let number: f64 = number.parse().map_err(|_| wrong())?;
    let seconds = match unit {
        "ms" => number / 1e3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(wrong()),
    };
    Duration::try_from_secs_f64(seconds).map_err(|_| wrong())
}

fn parse_percent(text: &str) -> Result<f64, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(value) if (0.0..=100.0).contains(&value) => Ok(value),
        _ => Err(format!("'{text}' is no percentage from 0 to 100")),
    }
}

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let number = |part: &str| u64::from_str_radix(part.trim_start_matches("0x"), 16).ok();
    text.split_once('-')
        .and_then(|(start, end)| Some((number(start)?, number(end)?)))
        .filter(|(start, end)| start < end)
        .ok_or_else(|| format!("'{text}' is no range of addresses; write 0x1000-0x2000"))
}

fn parse_line_size(text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        Ok(value) if value.is_power_of_two() && (16..=256).contains(&value) => Ok(value),
        _ => Err(format!(
            "'{text}' is no line size; it must be 16, 32, 64, 128 or 256"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_command_shows_examples() {
        for command in Cli::command().get_subcommands() {
            let help = command.get_after_help().map(ToString::to_string);
            assert!(
                help.is_some_and(|h| h.contains("Examples:")),
                "{} has no examples",
                command.get_name()
            );
        }
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("3"), Ok(Duration::from_secs(3)));
        for bad in ["", "s", "5x", "-1s", "1e400s"] {
            assert!(parse_duration(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_follows_the_program_is_its_own() {
        let cli = Cli::try_parse_from(["sunder", "detect", "--all", "--", "ls", "--all", "-o"]);
        let Ok(Cli {
            command: Command::Detect(detect),
        }) = cli
        else {
            panic!("{cli:?}");
        };
        assert!(detect.tell.all);
        assert_eq!(detect.program, ["ls", "--all", "-o"]);
    }
}
