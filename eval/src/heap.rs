//! `heap`: the live heap beside glibc's, mimalloc's and jemalloc's on the usual
//! allocator benchmarks (`workloads/alloc/loops.c`), in turns.

use crate::measure::median;
use crate::options::Options;
use crate::programs;
use crate::record::Record;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_workloads::default_out_dir;

/// Loops with their threads and their rounds at scale 1, about a tenth of a second.
const LOOPS: [(&str, u32, u64); 6] = [
    ("larson", 2, 10),
    ("scratch", 2, 50),
    ("thrash", 2, 50),
    ("xmalloc", 2, 10),
    ("sh6", 2, 50),
    ("single", 1, 125),
];

/// The allocator of a loop.
enum Heap {
    /// The C library.
    Own,
    /// `sunder run --placement` with this policy.
    Ours(&'static str),
    /// A library that is preloaded.
    Other(PathBuf),
}

const POLICIES: [&str; 4] = ["hoard", "sized", "call-site", "sized-call-site"];
const OTHERS: [(&str, &str); 2] = [
    ("mimalloc", "/usr/lib/x86_64-linux-gnu/libmimalloc.so.2.0"),
    ("jemalloc", "/usr/lib/x86_64-linux-gnu/libjemalloc.so.2"),
];

/// Runs the benchmark.
///
/// # Errors
/// If a loop fails or the record can't be written.
pub fn run(options: &Options) -> Result<()> {
    let sunder = programs::sunder()?;
    let program = loops()?;
    let heaps = heaps();
    let mut record = Record::new(
        "heap",
        "Seconds and most resident memory of allocator loops with the C library's heap, ours \
         under each policy, and others, in turns.",
        options.repetitions,
        &["loop", "threads", "heap", "run", "seconds", "kib"],
    )?;
    let mut seen: BTreeMap<(&str, &str), [Vec<f64>; 2]> = BTreeMap::new();
    let chosen = LOOPS.iter().filter(|l| l.0.contains(&options.only));
    for &(name, threads, rounds) in chosen.clone() {
        for i in 0..options.repetitions {
            for (heap, kind) in &heaps {
                let mut command = kind.command(&sunder, &program);
                let rounds = rounds * options.scale;
                command.args([name, &threads.to_string(), &rounds.to_string()]);
                let [seconds, kib] = measured(&mut command)
                    .with_context(|| format!("{name} with the heap {heap}"))?;
                record.row(&[
                    name.into(),
                    threads.to_string(),
                    (*heap).into(),
                    i.to_string(),
                    format!("{seconds:.4}"),
                    format!("{kib:.0}"),
                ])?;
                let [all_seconds, all_kib] = seen.entry((name, heap)).or_default();
                all_seconds.push(seconds);
                all_kib.push(kib);
            }
        }
        println!("{name}");
    }
    let names: Vec<&str> = heaps.iter().map(|h| h.0).collect();
    let table = |what: &str, column: usize, digits: usize| -> Result<String> {
        let mut text = format!("{what}\n\n| loop | {} |\n", names.join(" | "));
        writeln!(text, "|---{}|", "|---".repeat(names.len()))?;
        for (name, _, _) in chosen.clone() {
            write!(text, "| {name} ")?;
            for heap in &names {
                write!(
                    text,
                    "| {:.digits$} ",
                    median(&seen[&(*name, *heap)][column])
                )?;
            }
            writeln!(text, "|")?;
        }
        Ok(text)
    };
    let seconds = table("Seconds, medians:", 0, 3)?;
    let memory = table("KiB, medians:", 1, 0)?;
    let mut ratios = String::new();
    for other in names.iter().filter(|n| !POLICIES.contains(n)) {
        writeln!(ratios, "- `hoard` relative to {other}, time and memory:")?;
        for (name, _, _) in chosen.clone() {
            let ratio = |column: usize| {
                median(&seen[&(*name, "hoard")][column]) / median(&seen[&(*name, *other)][column])
            };
            writeln!(ratios, "  {name} {:.2}, {:.2}", ratio(0), ratio(1))?;
        }
    }
    record.finish(&format!("{ratios}\n{seconds}\n{memory}"))
}

/// The heaps that are installed; prints a notice for each that is not.
fn heaps() -> Vec<(&'static str, Heap)> {
    let mut heaps = vec![("glibc", Heap::Own)];
    heaps.extend(POLICIES.map(|policy| (policy, Heap::Ours(policy))));
    for (name, library) in OTHERS {
        if Path::new(library).exists() {
            heaps.push((name, Heap::Other(library.into())));
        } else {
            println!("SKIP: {name} is not installed ({library})");
        }
    }
    heaps
}

impl Heap {
    fn command(&self, sunder: &Path, program: &Path) -> Command {
        let mut command = Command::new(program);
        match self {
            Self::Own => {}
            Self::Ours(policy) => {
                command = Command::new(sunder);
                command
                    .args(["run", "--placement", policy, "--"])
                    .arg(program);
            }
            Self::Other(library) => {
                command.env("LD_PRELOAD", library);
            }
        }
        command
    }
}

/// Seconds and KiB, as the loop prints them.
fn measured(command: &mut Command) -> Result<[f64; 2]> {
    let output = command.output().context("cannot run it")?;
    ensure!(output.status.success(), "it ended with {}", output.status);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut numbers = text.split_whitespace().map(str::parse::<f64>);
    match (numbers.next(), numbers.next(), numbers.next()) {
        (Some(Ok(seconds)), Some(Ok(kib)), None) => Ok([seconds, kib]),
        _ => anyhow::bail!("it said {text:?}"),
    }
}

/// The program with the loops.
fn loops() -> Result<PathBuf> {
    let folder = default_out_dir();
    std::fs::create_dir_all(&folder)?;
    let program = folder.join("alloc-loops");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../workloads/alloc/loops.c");
    let built = Command::new("gcc")
        .args(["-O2", "-pthread", "-o"])
        .args([&program, &source])
        .status()
        .context("cannot run gcc")?;
    ensure!(built.success(), "{} does not build", source.display());
    Ok(program)
}
