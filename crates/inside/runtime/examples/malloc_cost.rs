//! What the runtime costs a program that allocates without pause: nanoseconds of CPU time for a
//! malloc and its free, alternating native and preloaded runs.
//!
//! `cargo build --release -p sunder-runtime`, then
//! `cargo run --release -p sunder-runtime --example malloc_cost -- LIBRARY [ROUNDS]`

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use sunder_wire::{Segment, SegmentOptions};

const PAIRS: &str = "3000000";

fn run(program: &Path, arguments: [&str; 2], runtime: Option<&Path>) -> Option<f64> {
    let mut command = Command::new(program);
    command.args(arguments).arg(PAIRS);
    let options = SegmentOptions {
        heap: true,
        ..SegmentOptions::default()
    };
    let segment = Segment::create(&options).ok()?;
    if let Some(runtime) = runtime {
        for (name, value) in segment.environment(runtime, None) {
            command.env(name, value.unwrap_or_default());
        }
    }
    let output = command.output().ok()?;
    if runtime.is_some() {
        assert!(segment.status().allocations_seen, "nothing was recorded");
        if std::env::var_os("VERBOSE").is_some() {
            eprintln!("{:?}", segment.status());
        }
    }
    String::from_utf8(output.stdout).ok()?.trim().parse().ok()
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let Some(runtime) = arguments.get(1).map(PathBuf::from) else {
        eprintln!("usage: malloc_cost LIBRARY [ROUNDS]");
        return ExitCode::FAILURE;
    };
    let rounds: usize = arguments.get(2).and_then(|r| r.parse().ok()).unwrap_or(7);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/malloc_cost.c");
    let program = std::env::temp_dir().join(format!("malloc-cost-{}", std::process::id()));
    let built = Command::new("gcc")
        .args(["-O2", "-g", "-pthread", "-o"])
        .args([&program, &source])
        .status();
    if !built.is_ok_and(|s| s.success()) {
        eprintln!("gcc cannot build {}", source.display());
        return ExitCode::FAILURE;
    }
    println!("pattern  threads  native-ns  preloaded-ns  added-ns  ratio (medians of {rounds})");
    for pattern in ["pair", "batch", "larson", "trees", "grow", "busy"] {
        for threads in ["1", "2"] {
            let mut native = Vec::new();
            let mut preloaded = Vec::new();
            for _ in 0..rounds {
                native.extend(run(&program, [pattern, threads], None));
                preloaded.extend(run(&program, [pattern, threads], Some(&runtime)));
            }
            let median = |all: &mut Vec<f64>| {
                all.sort_by(f64::total_cmp);
                all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
            };
            let (n, p) = (median(&mut native), median(&mut preloaded));
            println!(
                "{pattern:8} {threads:7} {n:10.1} {p:13.1} {:9.1} {:6.2}",
                p - n,
                p / n
            );
        }
    }
    // If this fails, one file stays in the folder for such files.
    let _ = std::fs::remove_file(&program);
    ExitCode::SUCCESS
}
