//! Helpers of this crate's integration tests: compiled target programs, and whether perf is allowed
//! here.

use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_access::ProcessId;
use sunder_observe::{FrequencyPlan, Launch, ObserveError, PerfSampler};

/// Compiles `tests/programs/NAME.c` into `directory`; `None`, with the reason
/// printed, if there is no compiler.
pub fn compile(directory: &Path, name: &str, options: &[&str]) -> Option<PathBuf> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/programs")
        .join(name)
        .with_extension("c");
    let program = directory.join(name);
    let gcc = Command::new("gcc")
        .args(options)
        .arg("-pthread")
        .arg("-o")
        .arg(&program)
        .arg(&source)
        .status();
    match gcc {
        Ok(status) => {
            assert!(status.success(), "gcc failed on {}", source.display());
            Some(program)
        }
        Err(error) => {
            println!("SKIP: cannot run gcc: {error}");
            None
        }
    }
}

/// Whether this machine allows sampling a child; prints the reason if not.
#[allow(dead_code, reason = "not every test samples")]
pub fn perf_allowed() -> bool {
    let prepared = Launch::new("true").prepare().unwrap();
    let pid: ProcessId = prepared.pid();
    match PerfSampler::for_child(pid, FrequencyPlan::fixed(1000), false) {
        Ok(_) => true,
        Err(ObserveError::PerfRefused(why)) => {
            println!("SKIP: perf_event_open was refused: {why}");
            false
        }
        Err(other) => panic!("{other}"),
    }
}
