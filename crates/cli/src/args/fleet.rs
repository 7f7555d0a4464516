//! The arguments of `sunder fleet`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

/// `sunder fleet`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder fleet report findings.jsonl
  sunder fleet report /var/log/sunder -o fleet.html")]
pub struct Fleet {
    /// What to do.
    #[command(subcommand)]
    pub command: FleetCommand,
}

/// The commands of `sunder fleet`.
#[derive(Debug, Subcommand)]
pub enum FleetCommand {
    /// Sum up what the watches of many machines wrote: by object, build and machine
    Report(FleetReport),
}

/// `sunder fleet report`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder fleet report web*/findings.jsonl*          rotated and gzipped files, too
  sunder fleet report /srv/collected -o fleet.html
  sunder fleet report spool --format markdown
  sunder fleet report *.jsonl --format json | jq '.objects[0]'

An object is the same on all machines, in all builds and after every restart. For each
build of its program the report says what the object costs there, so that one sees which
release brought or mended it. A record that is read twice counts once.

Exit status: 2 wrong usage; 125 a file that can't be opened, or no record at all.")]
pub struct FleetReport {
    /// Files that sunder watch wrote with --json, or folders with such files or with what it keeps
    /// with --spool
    #[arg(required = true, value_name = "FILE|DIR")]
    pub files: Vec<PathBuf>,
    /// The form of the report [default: as the name's ending of -o says (.html, .md, .txt, else JSON);
    /// without -o text]
    #[arg(long, value_enum, value_name = "FORMAT")]
    pub format: Option<FleetFormat>,
    /// Where to write it; default: standard output
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// In text, leave nothing out
    #[arg(long)]
    pub all: bool,
}

/// The forms of a fleet's report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum FleetFormat {
    /// For people, in a terminal
    Text,
    /// One page that works offline
    Html,
    /// For a ticket
    Markdown,
    /// For other tools: everything
    Json,
}
