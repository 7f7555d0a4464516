//! The command line. Definitions only; nothing here acts.

mod fleet;
mod groups;
mod options;
mod patch;
mod remedies;
mod start;
mod target;
mod traces;
mod watch;

pub use fleet::{Fleet, FleetCommand, FleetFormat, FleetReport};
pub use groups::command;
pub use options::{FailOn, Format, ObserveOptions, ReportOptions};
pub use patch::Patch;
pub use remedies::{Cure, PlacementChoice, Protect, Repair, Run};
pub use start::parse;
pub use target::Target;
pub use traces::{
    Dump, DumpKind, Export, MachineChoice, MachineOptions, Merge, OrderChoice, ProtocolChoice,
    Simulate, Trace, TraceCommand, Via, WhatIf,
};

pub use watch::Watch;

use clap::{Args, Parser, Subcommand};
use options::{observers, parse_duration, parse_line_size};
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;
use sunder_live::ObserverChoice;
use sunder_protect::observer::SAMPLED;

/// Find false sharing in running programs, name the data, and say what to do.
#[derive(Debug, Parser)]
#[command(
    name = "sunder",
    version,
    max_term_width = 100,
    after_help = "Examples:
  sunder demo                                see what it does
  sunder ./server --threads 8                run a program and report
  sunder attach --name redis-server          look at a running one
  sunder doctor                              what can be seen on this machine

Exit status: that of the program that was run. Sunder's own: 2 wrong usage,
122 inconclusive and 123 false sharing found with --fail-on, 125 Sunder failed,
126 the program can't be executed, 127 it was not found."
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
    /// Look at a running process, or take its falsely shared data apart
    Attach(Attach),
    /// Watch what threads share while a program runs, in the terminal
    Top(Top),
    /// Watch every process of this machine, once or all the time
    Watch(Watch),
    /// Analyse a perf.data file
    Import(Import),
    /// Render a saved result again
    Report(Report),
    /// Sum up what the watches of many machines found
    Fleet(Fleet),
    /// Replay a trace on another machine: which nodes miss, and why
    Simulate(Simulate),
    /// Join the results of a trace's buckets to one result
    Merge(Merge),
    /// Try changes of the layout on a trace, and rank what they save
    WhatIf(WhatIf),
    /// Compare two results: what appeared, went away, grew or shrank
    Diff(Diff),
    /// Print a diff that carries the advice of a result out, or try it
    Patch(Patch),
    /// Run a program and take false sharing apart as fits each object
    Cure(Cure),
    /// Run a program with an allocator that keeps its objects apart
    Run(Run),
    /// Run a program with private copies of falsely shared pages
    Protect(Protect),
    /// Run a program and move falsely shared bytes to their own lines
    Repair(Repair),
    /// Say what can be observed on this machine, and how to get more
    Doctor(Doctor),
    /// Say what a word of a report means, or a limit of a run
    Explain(Explain),
    /// Build and run a small program with false sharing, and its fix
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
    /// Print the manual page, or write one for every command
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
  sunder ./server --threads 8             the same
  sunder detect --format html -o report.html -- ./server
  sunder detect --format json -o new.json --fail-on false-sharing -- ./bench
  sunder detect --all --words -- ./server
  sunder detect --record run.sunder -- ./bench; sunder report run.sunder --line-size 128

The program's exit status, signals and standard streams are its own; the report
goes to standard error or to the files named with -o.")]
pub struct Detect {
    /// Which observer takes the samples
    #[arg(long, default_value = "auto", value_parser = observers())]
    pub observer: ObserverChoice,
    /// With --observer isolate: look for shared pages in so many of 1,000 intervals
    #[arg(long, value_name = "INTERVALS", default_value_t = SAMPLED, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub sampled: u32,
    /// Follow the processes that the program starts
    #[arg(long)]
    pub follow_children: bool,
    /// Measure more often what a fix gains: stop contending threads for some milliseconds at a time, and see how much
    /// faster the others get on. Without this option a thread is stopped for 4 % of the time at most
    #[arg(long, conflicts_with = "no_measure")]
    pub measure: bool,
    /// Never stop a thread: the report says what false sharing costs, and not what a fix gains
    #[arg(long)]
    pub no_measure: bool,
    /// Keep the raw events of the run in this file: sunder report judges it again, with another line
    /// size or threshold and without a second run
    #[arg(long, value_name = "FILE")]
    pub record: Option<PathBuf>,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// How to report.
    #[command(flatten)]
    pub tell: ReportOptions,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// `sunder attach`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder attach --name redis-server
  sunder attach --container 3f1c9d2e7a8b --name server
  sunder attach --unit nginx.service
  sunder attach --pid 4242 --duration 1m --format html -o report.html
  sunder attach --pid 4242 --repair          until Ctrl-C; then all is as it was

With --repair, all threads are stopped for some milliseconds when Sunder comes,
goes, or moves something; what was done is told on standard error.")]
pub struct Attach {
    /// Which process.
    #[command(flatten)]
    pub target: Target,
    /// How long: a number with ms, s or m [default: 10s; with --repair, until Ctrl-C]
    #[arg(long, value_parser = parse_duration)]
    pub duration: Option<Duration>,
    /// Take falsely shared data apart meanwhile, as `sunder repair` does
    #[arg(long)]
    pub repair: bool,
    /// Measure what a fix gains: stop contending threads for some milliseconds at a time, and see how much faster
    /// the others get on
    #[arg(long, conflicts_with = "repair")]
    pub measure: bool,
    /// Keep the raw events in this file, which sunder report judges again
    #[arg(long, value_name = "FILE", conflicts_with = "repair")]
    pub record: Option<PathBuf>,
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
    pub tell: ReportOptions,
}

/// `sunder top`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder top -- ./server --threads 8
  sunder top --name redis-server

What the program prints to the terminal is kept while the view is there, and shown after it;
from the terminal it reads nothing. Files and pipes stay its own. q leaves the view, and the
program goes on; Ctrl-C is passed on to a program that was started here. At the end comes the
report, as by sunder detect.

r moves the selected object's bytes to lines of their own while the program runs, as
sunder attach --repair does, and says what that gains; u puts them back. A question comes
first, since a library of ours goes into the program. Leaving the view, or its end, puts
all bytes back and takes the library out.")]
pub struct Top {
    /// Which process.
    #[command(flatten)]
    pub target: Target,
    /// How to observe.
    #[command(flatten)]
    pub observe: ObserveOptions,
    /// No report at the end
    #[arg(long, short)]
    pub quiet: bool,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
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
    pub tell: ReportOptions,
}

/// `sunder report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder report result.json
  sunder report result.json --format html -o report.html
  sunder report run.sunder --line-size 128 --threshold 0.5")]
pub struct Report {
    /// A result that was saved with --format json, or a run that was kept with --record
    pub file: PathBuf,
    /// Judge a kept run with lines of this many bytes [default: as it was judged]
    #[arg(long, value_name = "BYTES", value_parser = parse_line_size)]
    pub line_size: Option<u32>,
    /// How to report.
    #[command(flatten)]
    pub tell: ReportOptions,
}

/// `sunder diff`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder diff main.json branch.json
  sunder diff main.json branch.json --format html > changes.html
  sunder diff main.json branch.json --fail-on false-sharing
  sunder diff main.json branch.json --format markdown | gh pr comment --body-file -

Exit status: 0, also where something changed; 2 wrong usage; 122 and 123 see --fail-on;
125 a file that is no result.")]
pub struct Diff {
    /// The result to compare with
    pub old: PathBuf,
    /// The new result
    pub new: PathBuf,
    /// Print it as text, as a page with bars, for a pull request, or for tools
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "text")]
    pub format: DiffFormat,
    /// The same as --format json
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Also show what did not change
    #[arg(long)]
    pub all: bool,
    /// Exit with 123 if false sharing appeared or grew, with 122 if the new run could not tell; both,
    /// separated by a comma
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub fail_on: Vec<FailOn>,
}

/// How `sunder diff` prints a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum DiffFormat {
    /// For a terminal
    Text,
    /// One page that works offline
    Html,
    /// For a comment on a pull request
    Markdown,
    /// For other tools
    Json,
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

/// `sunder explain`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder explain                   the topics
  sunder explain false-sharing
  sunder explain seldom-at-once    why a run could not tell")]
pub struct Explain {
    /// The topic; without it, all are listed
    pub topic: Option<String>,
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
    fn arguments_after_the_program_belong_to_it() {
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
