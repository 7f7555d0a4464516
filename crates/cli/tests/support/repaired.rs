//! Runs programs under `sunder repair` and reads their reports.

use super::confine::{refuse_ptrace, without_random_addresses};
use super::{contention, plain_sunder, skips, targets};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Findings, Repair};
use sunder_workloads::{Variant, Workload};

/// How many runs may pass without threads running side by side before a test gives up.
pub const MOST_BUSY_RUNS: u32 = 8;

/// The path of the report of the run of this name.
pub fn report(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("repair-{name}.json"))
}

/// The outcome of a run.
pub struct Run {
    pub stdout: Vec<u8>,
    pub stderr: String,
    pub status: Option<i32>,
    pub findings: Option<Findings>,
}

impl Run {
    /// The report's part on repair.
    pub fn repair(&self) -> &Repair {
        let findings = self.findings.as_ref().expect("a report was written");
        findings.repair.as_ref().expect("it has the part")
    }

    /// Whether the program's threads ran at the same time for most of the run.
    pub fn side_by_side(&self) -> bool {
        let run = &self.findings.as_ref().expect("a report was written").run;
        run.program_cpu_seconds.unwrap_or(0.0) >= 1.5 * run.seconds
    }
}

/// Runs a program under repair.
pub fn repaired(name: &str, options: &[&str], program: &[&str]) -> Run {
    repaired_by(plain_sunder(), name, options, program)
}

/// The same where the library must be preloaded, because `ptrace` is refused.
pub fn repaired_without_ptrace(name: &str, options: &[&str], program: &[&str]) -> Run {
    let mut sunder = plain_sunder();
    refuse_ptrace(&mut sunder);
    repaired_by(sunder, name, options, program)
}

/// The same with the addresses that every program has without randomisation.
pub fn repaired_without_random_addresses(name: &str, program: &[&str]) -> Run {
    let mut sunder = plain_sunder();
    without_random_addresses(&mut sunder);
    repaired_by(sunder, name, &[], program)
}

/// Raises the priority of `command` and all that it starts, where that is allowed, so that other
/// work of the machine does not decide whether threads run side by side.
pub fn before_others(command: &mut Command) {
    let first = || {
        // SAFETY: both calls are async-signal-safe; the strings are terminated.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
            // With autogroup scheduling, priority counts only within a session.
            libc::setsid();
            let file = libc::open(c"/proc/self/autogroup".as_ptr(), libc::O_WRONLY);
            if file >= 0 {
                libc::write(file, c"-20".as_ptr().cast(), 3);
                libc::close(file);
            }
        }
        Ok(())
    };
    // SAFETY: the closure calls only what is async-signal-safe.
    unsafe { command.pre_exec(first) };
}

/// Runs for longer and longer until something was moved; `run` gets the number of times the usual
/// size. Only threads that contend have bytes moved. If `always`, they contend whenever they run
/// side by side, and a test whose threads did so in vain fails while threads of its own contend, the
/// second time ([`contention`]). If they never did, the test prints
/// `SKIP:`, and that is counted ([`skips`]).
pub fn until_moved(what: &str, always: bool, mut run: impl FnMut(u64) -> Run) -> Option<Run> {
    skips::begun();
    let mut failed = 0;
    for times in [2, 4, 4, 8, 16] {
        let run = run(times);
        if !run.repair().moved.is_empty() {
            return Some(run);
        }
        if always && run.side_by_side() {
            let (felt, told) = contention::is_felt();
            failed += u32::from(felt);
            let repair = run.repair();
            assert!(
                failed < targets::MOST_FAILED,
                "{what} is moved: {repair:#?}; {told}"
            );
        }
    }
    skips::too_busy();
    println!("SKIP: {what}: its threads did not run side by side");
    None
}

/// As [`until_moved`], of a program that is told how many rounds to do. Its output must be its own, and
/// it must succeed.
pub fn rounds_until_moved(name: &str, program: &Path, rounds: u64) -> Option<Run> {
    let path = program.to_str().expect("our own path");
    until_moved(name, false, |times| {
        let rounds = (2 * times * rounds).to_string();
        let native = Command::new(program).arg(&rounds).output();
        let run = repaired(name, &[], &[path, &rounds]);
        let native = native.expect("it runs").stdout;
        assert_eq!(run.stdout, native, "{}", run.stderr);
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        run
    })
}

fn repaired_by(mut sunder: Command, name: &str, options: &[&str], program: &[&str]) -> Run {
    let file = report(name);
    let _ = std::fs::remove_file(&file);
    before_others(&mut sunder);
    let output = assert_cmd::Command::from_std(sunder)
        .timeout(std::time::Duration::from_secs(120))
        .args(["repair", "--report"])
        .arg(&file)
        .args(options)
        .arg("--")
        .args(program)
        .output()
        .expect("sunder starts");
    Run {
        stdout: output.stdout,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        status: output.status.code(),
        findings: Findings::open(&file).ok(),
    }
}

/// The command line of a workload of this size.
pub fn arguments(program: &Path, workload: &Workload, size: u64) -> Vec<String> {
    let mut all = vec![program.to_str().expect("our own path").to_owned()];
    all.extend(workload.arguments());
    if let Some(last) = all.last_mut() {
        *last = size.to_string();
    }
    all
}

/// Borrows the strings, to pass them on.
pub fn strings(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// A workload at so many times its usual size, with so many threads: its command line, and its
/// output without Sunder.
pub fn workload(name: &str, threads: u32, times: u64) -> (Vec<String>, Vec<u8>) {
    let workload = targets::workload(name);
    let program = targets::build(name, Variant::Shared);
    let mut all = arguments(&program, &workload, times * workload.size);
    all[1] = threads.to_string();
    let native = Command::new(&program).args(&all[1..]).output();
    (all, native.expect("it runs").stdout)
}
