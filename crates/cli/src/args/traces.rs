//! The arguments of the commands that record and replay traces: `trace`, `simulate` and `what-if`.

use super::options::ReportOptions;
use clap::{Args, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use sunder_coherence::Caches;
use sunder_replay::PlacementAsked;
use sunder_replay::simulate::{parse_align, parse_caches, parse_place, parse_placement};

/// The machine of a replay: one by name, and what differs from it.
#[derive(Debug, Args)]
pub struct MachineOptions {
    /// The machine, of which the options below change parts
    #[arg(long, value_enum, default_value_t = MachineChoice::Caches)]
    pub machine: MachineChoice,
    /// Bytes that are kept coherent as a whole, a cache line or a page [default: 64; of dsm 4096]
    #[arg(long, value_name = "BYTES")]
    pub granule: Option<u64>,
    /// Nodes with caches of their own [default: one for each thread; of dsm at most 16]
    #[arg(long, value_name = "COUNT")]
    pub nodes: Option<u32>,
    /// How copies are kept coherent [default: mesi; of dsm msi]
    #[arg(long, value_enum)]
    pub protocol: Option<ProtocolChoice>,
}

/// Machines by name.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub enum MachineChoice {
    /// Processors whose caches are kept coherent by lines
    Caches,
    /// A distributed shared memory of 16 nodes, by pages: the machine of the SCSTallocator paper
    Dsm,
}

/// `sunder simulate`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder simulate app.trace
  sunder simulate app.trace --granule 128 --protocol mesif
  sunder simulate app.trace --caches 48K/12,2M/16
  sunder simulate app.trace --machine dsm --placement sized-call-site
  sunder simulate app.trace --placement hoard
  sunder simulate app.trace --placement padded:worker.c:41,make_queue
  sunder simulate app.trace --pad 'struct counter.hits' --align table=128
  sunder simulate app.trace --format json -o result.json
  sunder simulate app.tables/bucket=07 -o 07.json     a part, for sunder merge

Exit status: 2 wrong usage, 123 false sharing found with --fail-on, 125 a machine
that cannot be, a name that the trace does not have, or a file that is no trace.")]
pub struct Simulate {
    /// A file that sunder trace wrote; or folders such as app.tables/bucket=07, which sunder trace export
    /// wrote. Of buckets the result is JSON for sunder merge
    #[arg(required = true, value_name = "FILE|BUCKET")]
    pub files: Vec<PathBuf>,
    /// Which machine is simulated.
    #[command(flatten)]
    pub machine: MachineOptions,
    /// Private caches of a node: infinite, or bytes and ways of one or two levels
    #[arg(long, value_name = "L1,L2", value_parser = parse_caches)]
    pub caches: Option<Caches>,
    /// In which order the threads' accesses come [default: parallel; of buckets, that of the export]
    #[arg(long, value_enum)]
    pub order: Option<OrderChoice>,
    /// Which thread runs on which node, threads from 1 and nodes from 0
    #[arg(long, value_name = "THREAD:NODE", value_delimiter = ',', value_parser = parse_place)]
    pub map: Vec<(u32, u32)>,
    /// Sort the rows of a bucket in memory if another engine wrote them in a wrong order, instead of
    /// refusing them
    #[arg(long)]
    pub sort: bool,
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
    /// Leave out of the result what differs from run to run: how long the replay took, and this machine
    #[arg(long)]
    pub reproducible: bool,
    /// How to report.
    #[command(flatten)]
    pub tell: ReportOptions,
}

/// `sunder merge`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder trace export app.trace -o app.tables
  for b in app.tables/bucket=*; do sunder simulate $b -o $(basename $b).json; done
  sunder merge bucket=*.json -o result.json

The result is the one of sunder simulate app.trace: with --reproducible for both, the
same bytes. The program and its libraries are looked up here, for names.

Exit status: 2 wrong usage, 123 false sharing found with --fail-on, 125 parts that
are missing, given twice, or of different traces.")]
pub struct Merge {
    /// Files that sunder simulate wrote for buckets; together they must be all buckets of one export
    #[arg(required = true, value_name = "PART")]
    pub parts: Vec<PathBuf>,
    /// Leave out of the result what differs from run to run: how long the replays took, and this machine
    #[arg(long)]
    pub reproducible: bool,
    /// How to report.
    #[command(flatten)]
    pub tell: ReportOptions,
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
    /// Which machine is simulated.
    #[command(flatten)]
    pub machine: MachineOptions,
    /// In which order the threads' accesses come
    #[arg(long, value_enum, default_value_t = OrderChoice::Canonical)]
    pub order: OrderChoice,
    /// Which thread runs on which node, threads from 1 and nodes from 0
    #[arg(long, value_name = "THREAD:NODE", value_delimiter = ',', value_parser = parse_place)]
    pub map: Vec<(u32, u32)>,
    /// Try changes for so many findings, the dearest first
    #[arg(long, value_name = "COUNT", default_value_t = 8)]
    pub top: usize,
    /// How to report.
    #[command(flatten)]
    pub tell: ReportOptions,
}

/// What `--order` takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum OrderChoice {
    /// As if each thread had a processor of its own, all of one speed; synchronisation orders them
    Parallel,
    /// The same, but who asks for a lock first gets it: two recordings of threads that do the same
    /// give the same counts
    Canonical,
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
  sunder trace dump --thread 2 --kind write server.trace
  sunder trace export server.trace -o server.tables"
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
    /// Write a trace as Parquet tables, cut by line, for DuckDB, Spark, Dask and replays on a cluster
    Export(Export),
}

/// `sunder trace export`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  sunder trace export app.trace -o app.tables
  sunder trace export app.trace -o pages --granule 4096 --buckets 256
  sunder simulate app.tables/bucket=07 -o 07.json
  sunder simulate pages/bucket=07 --machine dsm --heap-only -o 07.json
  duckdb -c \"SELECT count(*) FROM read_parquet('app.tables/bucket=*/*.parquet')\"

The folder's schema.md says which tables and columns there are.")]
pub struct Export {
    /// The trace
    pub file: PathBuf,
    /// The folder to write to, which is made; it must not have files yet
    #[arg(long, short, value_name = "DIR")]
    pub output: PathBuf,
    /// Into how many parts to cut the accesses: at least as many as processors will replay them
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    pub buckets: u32,
    /// Bytes of the lines by which to cut: all accesses to a line go to one bucket, so replays may use
    /// lines of this size or smaller ones; 4096 and more for replays with pages
    #[arg(long, value_name = "BYTES", default_value_t = 64)]
    pub granule: u64,
    /// In which order the threads' accesses come
    #[arg(long, value_enum, default_value_t = OrderChoice::Canonical)]
    pub order: OrderChoice,
    /// No line about the progress, which only a terminal gets anyway
    #[arg(long, short)]
    pub quiet: bool,
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

fn parse_range(text: &str) -> Result<(u64, u64), String> {
    let number = |part: &str| u64::from_str_radix(part.trim_start_matches("0x"), 16).ok();
    text.split_once('-')
        .and_then(|(start, end)| Some((number(start)?, number(end)?)))
        .filter(|(start, end)| start < end)
        .ok_or_else(|| format!("'{text}' is no range of addresses; write 0x1000-0x2000"))
}
