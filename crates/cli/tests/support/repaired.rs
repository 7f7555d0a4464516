//! Programs under `sunder repair`, and what is reported of them.

use super::confine::refuse_ptrace;
use super::{plain_sunder, targets};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use sunder_findings::{Findings, Repair};
use sunder_workloads::{Variant, Workload};

/// Runs in which the threads may fail to run side by side.
pub const MOST_BUSY_RUNS: u32 = 8;

/// Where the report of the run of this name goes.
pub fn report(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("repair-{name}.json"))
}

/// What came of a run.
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

/// The same where the library has to be loaded at the program's beginning.
pub fn repaired_without_ptrace(name: &str, options: &[&str], program: &[&str]) -> Run {
    let mut sunder = plain_sunder();
    refuse_ptrace(&mut sunder);
    repaired_by(sunder, name, options, program)
}

/// Has `command` and what it starts go before the machine's other work, where that is
/// allowed: how much there is then does not decide whether threads run side by side.
pub fn before_others(command: &mut Command) {
    let first = || {
        // SAFETY: calls that may come between `fork` and `exec`, with strings that end.
        unsafe {
            libc::setpriority(libc::PRIO_PROCESS, 0, -20);
            // Where sessions share the machine, priority counts within one alone.
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

/// Has it run for longer and longer, `run` being told how many times the usual size it
/// is to do, until something was moved. That takes threads that contend: if `always`, they
/// do whenever they run side by side. On a machine on which they never did, the test says
/// `SKIP:`.
pub fn until_moved(what: &str, always: bool, mut run: impl FnMut(u64) -> Run) -> Option<Run> {
    for times in [2, 4, 4, 8, 16] {
        let run = run(times);
        if !run.repair().moved.is_empty() {
            return Some(run);
        }
        let missed = always && run.side_by_side();
        assert!(!missed, "{what} is moved: {:#?}", run.repair());
    }
    println!("SKIP: {what}: its threads did not run side by side");
    None
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

/// As they are handed on.
pub fn strings(all: &[String]) -> Vec<&str> {
    all.iter().map(String::as_str).collect()
}

/// A workload at so many times its usual size, by so many threads: its command line, and
/// what it writes without us.
pub fn workload(name: &str, threads: u32, times: u64) -> (Vec<String>, Vec<u8>) {
    let workload = targets::workload(name);
    let program = targets::build(name, Variant::Shared);
    let mut all = arguments(&program, &workload, times * workload.size);
    all[1] = threads.to_string();
    let native = Command::new(&program).args(&all[1..]).output();
    (all, native.expect("it runs").stdout)
}
