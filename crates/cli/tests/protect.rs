//! `sunder protect`: whatever a program does while its threads are isolated, it does as
//! it would natively. Judged by output and status, never by time; how often somebody was
//! isolated is up to the machine, but for one case that waits for it.

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

const CASES: [&str; 22] = [
    "plain",
    "locks",
    "hand",
    "exits",
    "cancel",
    "async",
    "signal",
    "process-signal",
    "jump",
    "sleepers",
    "pause",
    "malloc",
    "fork",
    "exec",
    "crash",
    "abort",
    "exit",
    "spawn",
    "faults",
    "prints",
    "fpu",
    "threads",
];

fn program() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/protect.c");
    let program = folder.join("protect");
    let aside = folder.join(format!("protect.{:?}", std::thread::current().id()));
    let compiled = Command::new("gcc")
        .args(["-O1", "-g", "-w", "-pthread", "-o"])
        .arg(&aside)
        .arg(&source)
        .status()
        .expect("gcc is needed, as the README says");
    assert!(compiled.success(), "it compiles");
    std::fs::rename(&aside, &program).expect("same folder");
    program
}

/// Runs a command with a limit that only a hang reaches.
fn output(command: &mut Command) -> Output {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(ToOwned::to_owned)
        .collect();
    Command::new("timeout")
        .args(["-s", "KILL", "120"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs")
}

fn protect(arguments: &[&str], program: &Path, case: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("protect").args(arguments);
    command.args(["--isolate-global", "shared", "--"]);
    output(command.arg(program).arg(case))
}

/// Whether threads can be stopped here; says so if not.
fn works(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = said.contains("can't be stopped");
    if refused {
        println!("SKIP: {said}");
    }
    !refused
}

#[test]
fn programs_do_what_they_do_natively() {
    let _alone = support::targets::alone();
    support::usual_signals();
    let program = program();
    let mut wrong = Vec::new();
    for case in CASES {
        let native = output(Command::new(&program).arg(case));
        for arguments in [&[][..], &["--every", "500"]] {
            let protected = protect(arguments, &program, case);
            if !works(&protected) {
                return;
            }
            // A shell's number stands for a death by signal.
            let status = |o: &Output| {
                use std::os::unix::process::ExitStatusExt;
                o.status.code().or(o.status.signal().map(|s| 128 + s))
            };
            if status(&native) != status(&protected) || native.stdout != protected.stdout {
                wrong.push(format!("{case} {arguments:?}: {native:?}\n{protected:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn threads_are_isolated_and_lose_nothing() {
    let _alone = support::targets::alone();
    let program = program();
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("protect-report.json");
    let path = report.to_str().expect("our own path");
    let protected = protect(&["--report", path], &program, "until");
    if !works(&protected) {
        return;
    }
    let text = String::from_utf8_lossy(&protected.stdout);
    assert_eq!(text, "1\n1\njoined 0\nright\n", "{protected:?}");
    assert_eq!(protected.status.code(), Some(5));
    let report = std::fs::read_to_string(report).expect("it was written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert!(
        report["episodes"].as_u64().is_some_and(|n| n > 0),
        "{report}"
    );
    assert!(
        report["committed_bytes"].as_u64().is_some_and(|n| n > 0),
        "{report}"
    );
    let said = String::from_utf8_lossy(&protected.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn what_cannot_be_isolated_runs_natively() {
    let _alone = support::targets::alone();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--", "sh", "-c", "echo out; exit 9"]);
    let native = output(&mut command);
    assert_eq!(native.status.code(), Some(9));
    assert_eq!(native.stdout, b"out\n");
    let said = String::from_utf8_lossy(&native.stderr);
    assert!(said.contains("runs natively"), "{said}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--quiet", "--", "no-such-program-here"]);
    assert_eq!(output(&mut command).status.code(), Some(127));
}
