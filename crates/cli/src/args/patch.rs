//! The arguments of `sunder patch`.

use super::options::parse_duration;
use clap::Args;
use std::path::PathBuf;
use std::time::Duration;

/// `sunder patch`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder detect -o result.json -- ./server
  sunder patch result.json                     print a unified diff
  sunder patch result.json | patch -p1         apply it
  sunder patch result.json --root ~/src/server --finding 1
  sunder patch result.json --build 'make -j2' --run './bench 2' --check './same-answers'

Without --build nothing is written: the diff goes to standard output, with the advice in lines
that begin with #, which patch skips. Where a change is not certain to be right there is no diff,
and the reason is told.

With --build and --run, each way is tried in a copy of the folder: it is built, run in turns with
the original until the gain is certain, and observed. The best is written to fix.diff. The commands
are run by sh, with your rights.

Exit status: 0 there is a patch (after a trial: one that is faster, or that removes the sharing
without a gain that was measured), or nothing to patch; 122 no finding can be patched for sure, or
the trial could not tell; 123 no patch helped; 125 Sunder failed.")]
pub struct Patch {
    /// A result that was saved with --format json
    pub file: PathBuf,
    /// The folder with the sources; the names in the result are looked up below it [default: the
    /// current folder, else where they were built]
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Only the finding of this rank; may be given several times
    #[arg(long, value_name = "RANK")]
    pub finding: Vec<u32>,
    /// Write alignment as an attribute of gcc and clang, for C++ before C++11
    #[arg(long)]
    pub attributes: bool,
    /// Build the copies with this command
    #[arg(long, value_name = "COMMAND", requires = "run")]
    pub build: Option<String>,
    /// Run the program with this command, in the copies
    #[arg(long, value_name = "COMMAND", requires = "build")]
    pub run: Option<String>,
    /// Whether the output is right; succeeds if so. Without it, standard output and exit status must
    /// be those of the original
    #[arg(long, value_name = "COMMAND", requires = "build")]
    pub check: Option<String>,
    /// Where to write the best patch of a trial
    #[arg(long, short, value_name = "FILE", default_value = "fix.diff")]
    pub output: PathBuf,
    /// Most time for the runs of one way
    #[arg(long, value_name = "TIME", default_value = "10m", value_parser = parse_duration)]
    pub time: Duration,
    /// Most time for one command; then it and its children are killed
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = parse_duration)]
    pub limit: Duration,
}
