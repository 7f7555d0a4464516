//! `sunder detect --observer isolate`: programs do what they do natively, and what their
//! threads write falsely shared is found by comparing pages.
//!
//! How sure the answers are: a line is judged by commits, one every 10 ms, so a program
//! must compute for some tenths of a second while both threads are isolated. Whether they
//! run at the same time is up to the machine: such checks are repeated, and say `SKIP:`
//! if the threads never ran side by side.

mod support;

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use sunder_findings::ObjectKind;
use sunder_workloads::Variant;
use support::targets::{as_expected, build, falsely_shared, open, side_by_side};

/// Runs a program under the observer, with its result in `file`.
fn observe(file: &Path, program: &Path, arguments: &[&str]) -> Output {
    let mut command = support::plain_sunder();
    command
        .args(["detect", "--observer", "isolate", "--quiet", "-o"])
        .arg(file)
        .args(["--format", "json", "--"])
        .arg(program)
        .args(arguments);
    command.output().expect("it was just built")
}

/// Whether threads can be stopped here; says so if not.
fn works(limits: &[String]) -> bool {
    let refused = limits.iter().find(|l| l.contains("can't be stopped"));
    if let Some(why) = refused {
        println!("SKIP: {why}");
    }
    refused.is_none()
}

#[test]
fn the_object_that_threads_write_falsely_shared_is_named() {
    let program = build("linear_regression", Variant::Shared);
    let file = Path::new(env!("CARGO_TARGET_TMPDIR")).join("isolate-regression.json");
    let arguments = ["2", "200000000"];
    let native = Command::new(&program)
        .args(arguments)
        .output()
        .expect("it was just built");
    side_by_side("linear_regression", || {
        let seen = observe(&file, &program, &arguments);
        assert_eq!(seen.stdout, native.stdout, "{seen:?}");
        assert!(seen.status.success() && seen.stderr.is_empty(), "{seen:?}");
        let findings = open(&file)?;
        assert_eq!(findings.run.observer, "isolate");
        if !works(&findings.limits) {
            return Ok(());
        }
        let heap = |f: &sunder_findings::Finding| f.object.kind == ObjectKind::Heap;
        let found = falsely_shared(&findings, heap)?;
        if !found.confirmed {
            return Err("commits did not confirm it".into());
        }
        as_expected(found, "linear_regression")
    });
}

/// What threads, signals, processes and memory promise: the cases of `protect`.
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

fn cases() -> std::path::PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/protect.c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("isolated-cases");
    let aside = program.with_extension(format!("{:?}", std::thread::current().id()));
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

/// With a limit that only a hang reaches.
fn limited(command: &Command) -> Output {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    Command::new("timeout")
        .args(["-s", "KILL", "120"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs")
}

/// A shell's number stands for a death by signal.
fn status(output: &Output) -> Option<i32> {
    let signal = output.status.signal().map(|s| 128 + s);
    output.status.code().or(signal)
}

/// Private are here all pages that two threads write, not only those of which it is known
/// that nothing else is on them.
#[test]
fn programs_do_what_they_do_natively_whatever_is_private() {
    let _alone = support::targets::alone();
    support::usual_signals();
    let program = cases();
    let mut wrong = Vec::new();
    for case in CASES {
        let native = limited(Command::new(&program).arg(case));
        for arguments in [
            &["detect", "--observer", "isolate", "--quiet"][..],
            &[
                "detect",
                "--observer",
                "isolate",
                "--quiet",
                "--frequency",
                "2000",
                "--sampled",
                "1000",
            ],
            &["protect", "--eager", "--quiet"],
            &["protect", "--eager", "--quiet", "--every", "500"],
        ] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
            let isolated = limited(command.args(arguments).arg("--").arg(&program).arg(case));
            if status(&native) != status(&isolated) || native.stdout != isolated.stdout {
                wrong.push(format!("{case} {arguments:?}: {native:?}\n{isolated:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn eager_protection_isolates_what_two_threads_write() {
    let _alone = support::targets::alone();
    let program = cases();
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("eager-report.json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command
        .args(["protect", "--eager", "--report"])
        .arg(&report);
    // The program computes until it was isolated.
    let protected = limited(command.arg("--").arg(&program).arg("until"));
    let said = String::from_utf8_lossy(&protected.stderr);
    if said.contains("can't be stopped") {
        println!("SKIP: {said}");
        return;
    }
    let text = String::from_utf8_lossy(&protected.stdout);
    assert_eq!(text, "1\n1\njoined 0\nright\n", "{protected:?}");
    assert_eq!(protected.status.code(), Some(5));
    let report = std::fs::read_to_string(report).expect("it was written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    assert!(report["episodes"].as_u64() > Some(0), "{report}");
    assert!(report["pages"].as_u64() > Some(0), "{report}");
    assert!(report["committed_bytes"].as_u64() > Some(0), "{report}");
}
