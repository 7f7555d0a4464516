//! `sunder demo`: compiles and runs a small program with false sharing, shows
//! the report, runs the fixed variant, and prints both times.

use crate::args::{Demo, TellOptions};
use crate::output::{Output, note};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use sunder_live::Observation;

const SOURCE: &str = include_str!("../../../workloads/demo/demo.c");

/// Runs of each variant; the fastest counts.
const RUNS: u32 = 3;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If there is no compiler or the programs can't be run.
pub fn run(options: &Demo) -> Result<u8> {
    let temporary;
    let folder: &Path = match &options.keep {
        Some(folder) => {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot make {}", folder.display()))?;
            folder
        }
        None => {
            temporary = tempfile::tempdir().context("cannot make a temporary folder")?;
            temporary.path()
        }
    };
    let source = folder.join("demo.c");
    std::fs::write(&source, SOURCE)
        .with_context(|| format!("cannot write {}", source.display()))?;
    println!("Compiling a program whose threads count into neighbouring structs (demo.c) …");
    let shared = compile(&source, &folder.join("demo"), &[])?;
    let fixed = compile(&source, &folder.join("demo-fixed"), &["-DFIXED=1"])?;
    let threads = options.threads.to_string();
    println!("Running it under `sunder detect -- demo {threads}`:\n");
    let program: Vec<OsString> = vec![shared.clone().into(), threads.clone().into()];
    let (findings, exit) = sunder_live::observe(&Observation {
        program,
        ..Observation::default()
    })?;
    if !exit.success() {
        bail!("the demo program failed: {exit}");
    }
    let tell = TellOptions {
        format: Vec::new(),
        output: Vec::new(),
        all: false,
        threshold: None,
        words: false,
        fail_on: None,
        quiet: false,
    };
    Output::new(&tell, true)?.write(&findings);
    println!("\nRunning it and its fixed variant (-DFIXED=1 aligns each struct to a line) …");
    let before = fastest(&shared, &threads)?;
    let after = fastest(&fixed, &threads)?;
    println!(
        "\n  with false sharing  {:7.1} ms\n  fixed               {:7.1} ms   {:.1} times as fast",
        before.as_secs_f64() * 1e3,
        after.as_secs_f64() * 1e3,
        before.as_secs_f64() / after.as_secs_f64().max(1e-9)
    );
    if let Some(folder) = &options.keep {
        println!("\nSources and programs are in {}.", folder.display());
    }
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if cpus < 2 {
        note("this machine has one CPU: threads take turns, so lines do not move between cores");
    }
    Ok(0)
}

fn compile(source: &Path, program: &Path, flags: &[&str]) -> Result<PathBuf> {
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let compiled = Command::new(&compiler)
        .args(["-O2", "-g", "-pthread", "-o"])
        .arg(program)
        .arg(source)
        .args(flags)
        .output()
        .with_context(|| {
            format!(
                "the demo needs a C compiler, and {} can't be run; install gcc or set CC",
                compiler.display()
            )
        })?;
    if !compiled.status.success() {
        bail!(
            "{} could not compile the demo:\n{}",
            compiler.display(),
            String::from_utf8_lossy(&compiled.stderr)
        );
    }
    Ok(program.to_owned())
}

fn fastest(program: &Path, threads: &str) -> Result<Duration> {
    let mut best = Duration::MAX;
    for _ in 0..RUNS {
        let start = Instant::now();
        let status = Command::new(program)
            .arg(threads)
            .stdout(Stdio::null())
            .status()
            .with_context(|| format!("cannot run {}", program.display()))?;
        if !status.success() {
            bail!("{} failed: {status}", program.display());
        }
        best = best.min(start.elapsed());
    }
    Ok(best)
}
