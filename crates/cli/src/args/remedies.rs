//! The arguments of the commands that change how a program runs: `run`, `protect`, `repair` and
//! `cure`.

use super::options::{ObserveOptions, observers};
use clap::{Args, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use sunder_live::ObserverChoice;

/// `sunder run`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder run --placement hoard -- ./server
  sunder detect --format json -o findings.json -- ./server
  sunder run --fix findings.json -- ./server

The program's exit status, signals and standard streams are its own. The
processes that it starts get the allocator too.")]
pub struct Run {
    /// Which objects may share lines and pages
    #[arg(long, value_enum, value_name = "POLICY", default_value_t = PlacementChoice::Hoard)]
    pub placement: PlacementChoice,
    /// Give the heap objects of a saved result (`detect --format json`) lines of their own
    #[arg(long, value_name = "FILE")]
    pub fix: Option<PathBuf>,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `sunder protect`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder protect -- ./server --threads 8
  sunder detect --format json -o findings.json -- ./server
  sunder protect --from findings.json -- ./server

The program begins natively; what it shares falsely is isolated when it is seen, or
from the beginning if a saved result names it. Only objects are isolated of which
each byte was seen used by one thread. Threads see each other's changes there when
one of them synchronises or calls the system, and after 10 ms at the latest; programs
that synchronise by plain loads and stores alone must not be run so. What can't be
kept right runs natively, and the line on standard error says why. The program's exit
status, signals and standard streams are its own.")]
pub struct Protect {
    /// Isolate what a saved result (`detect --format json`) says is falsely shared, and
    /// watch for nothing else
    #[arg(long, value_name = "FILE")]
    pub from: Option<PathBuf>,
    /// Isolate whatever two threads write, where small objects are, without asking whether it costs
    /// anything: SHERIFF's own way. Programs that synchronise by plain loads and stores go wrong
    #[arg(long, conflicts_with_all = ["from", "strict", "isolate_global"])]
    pub eager: bool,
    /// Where to write what was done, as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Where to write which bytes each thread changed, commit by commit, while the program runs: a
    /// file or a named pipe, for tools on `include/sunder.h`
    #[arg(long, value_name = "FILE")]
    pub commits: Option<PathBuf>,
    /// Say nothing at the end
    #[arg(long, short)]
    pub quiet: bool,
    /// Isolate only pages on which nothing but what the result names was ever written
    #[arg(long)]
    pub strict: bool,
    /// Isolate the pages of this global variable, whatever is said of it (for tests)
    #[arg(long, value_name = "NAME", hide = true)]
    pub isolate_global: Vec<String>,
    /// Look at threads, and commit, this often, however short episodes are (for tests)
    #[arg(long, value_name = "MICROSECONDS", hide = true)]
    pub every: Option<u32>,
    /// Let isolated threads execute any code (for tests)
    #[arg(long, hide = true)]
    pub any_code: bool,
    /// Which observer takes the samples
    #[arg(long, default_value = "auto", value_parser = observers(), conflicts_with = "from")]
    pub observer: ObserverChoice,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// What `--placement` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PlacementChoice {
    /// One heap for all threads; objects lie as they come
    General,
    /// A heap for each thread: no line has objects of two threads
    Hoard,
    /// Only objects of one size on a page
    Sized,
    /// Only objects of one call site on a page
    CallSite,
    /// Only objects of one size and call site on a page
    SizedCallSite,
}

/// `sunder repair`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder repair -- ./server --threads 8
  sunder repair --dry-run -- ./server
  sunder repair --report repair.json --quiet -- ./bench
  sunder repair --from findings.json -- ./server

Bytes of different threads that share lines are moved to lines of their own while
the program runs, and moved back when anything is in doubt. The program's exit
status, signals and standard streams are its own; what was done is told on standard
error.")]
pub struct Repair {
    /// Only say what would be moved
    #[arg(long)]
    pub dry_run: bool,
    /// Repair the processes that the program starts too, as long as it runs: for scripts
    #[arg(long)]
    pub follow_children: bool,
    /// Move the objects of this result of `sunder detect` as soon as threads contend for them
    #[arg(long, value_name = "FILE", conflicts_with = "chaos")]
    pub from: Option<PathBuf>,
    /// Write the result, with what was done, to this file as JSON
    #[arg(long, value_name = "FILE")]
    pub report: Option<PathBuf>,
    /// Say nothing on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// For tests: move random pages at random moments, by this seed, and put them back
    #[arg(long, value_name = "SEED", conflicts_with = "dry_run")]
    pub chaos: Option<u64>,
    /// Compare each address with all moved ranges, and keep them moved (to see what specialising gains)
    #[arg(long, hide = true)]
    pub compare_all: bool,
    /// Which observer takes the samples
    #[arg(long, default_value = "auto", value_parser = observers())]
    pub observer: ObserverChoice,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `sunder cure`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder cure -- ./server --threads 8
  sunder cure --save plan.json -- ./bench
  sunder cure --plan plan.json -- ./bench

Bytes of different threads that share lines are moved to lines of their own, as by
`sunder repair`. What can't be moved, or gains nothing by it, is isolated while threads
compute, as by `sunder protect`, if that is safe. Blocks that are allocated later by the
same calls get lines of their own. With a plan from an earlier run they do from the
start, and nothing is tried that did not help then. The program's exit status, signals
and standard streams are its own; what was done is told on standard error.")]
pub struct Cure {
    /// Take the objects of this plan apart as soon as threads contend for them, by the remedies
    /// that it names
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// Write the result, with what was done, to this file as JSON: the plan for the next run
    #[arg(long, value_name = "FILE")]
    pub save: Option<PathBuf>,
    /// Move falsely shared bytes in the processes that the program starts too, as long as it runs: for
    /// scripts
    #[arg(long)]
    pub follow_children: bool,
    /// Say nothing on standard error
    #[arg(long, short)]
    pub quiet: bool,
    /// Which observer takes the samples
    #[arg(long, default_value = "auto", value_parser = observers())]
    pub observer: ObserverChoice,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}
