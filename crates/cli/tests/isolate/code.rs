//! `sunder protect` on programs whose hot loops lie on one page of code with locked instructions:
//! the loops are executed in isolation, all code around them outside of it. Judged by output,
//! status and the report's counts. Only one case needs a thread to be isolated, and it waits for
//! that.

use crate::support::built;
use object::{Object, ObjectSection};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn program() -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/guard.c");
    let program = folder.join("guard");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-g", "-w", "-pthread"]);
    built::once(&program, compiler.arg(source)).expect("it compiles");
    program
}

fn protect(arguments: &[&str], program: &Path, case: &str) -> Output {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", env!("CARGO_BIN_EXE_sunder"), "protect"]);
    command.args(arguments);
    command.args(["--isolate-global", "slots", "--"]);
    let command = command.arg(program).arg(case).stdin(Stdio::null());
    command.output().expect("timeout runs")
}

/// Whether threads can be stopped here; prints a notice if not.
fn works(output: &Output) -> bool {
    let said = String::from_utf8_lossy(&output.stderr);
    let refused = said.contains("can't be stopped");
    if refused {
        println!("SKIP: {said}");
    }
    !refused
}

/// Pages of the program's code, and those of them with instructions that order memory.
fn pages(program: &Path) -> [Vec<u64>; 2] {
    let bytes = std::fs::read(program).expect("it was just built");
    let file = object::File::parse(bytes.as_slice()).expect("the linker wrote it");
    let text = file.section_by_name(".text").expect("it has code");
    let code = text.data().expect("code is in the file");
    let (start, end) = (text.address(), text.address() + text.size());
    let all = (start & !4095..end).step_by(4096).collect();
    let loud = sunder_rewrite::OrderingCode::of(code, start).pages;
    [all, loud.into_iter().collect()]
}

#[test]
fn a_loop_beside_a_locked_instruction_is_isolated_and_the_sums_are_right() {
    let _alone = crate::support::targets::alone();
    let program = program();
    let [all, loud] = pages(&program);
    assert_eq!(all, loud, "there is no other code that could be isolated");
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("guard-report.json");
    let path = report.to_str().expect("our own path");
    let protected = protect(&["--report", path], &program, "until");
    if !works(&protected) {
        return;
    }
    let text = String::from_utf8_lossy(&protected.stdout);
    assert_eq!(text, "right 0\n", "{protected:?}");
    assert_eq!(protected.status.code(), Some(5));
    let report = std::fs::read_to_string(report).expect("it was written");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    let at_least_one = |count: &serde_json::Value| count.as_u64().is_some_and(|n| n > 0);
    assert!(at_least_one(&report["episodes"]), "{report}");
    assert!(at_least_one(&report["committed_bytes"]), "{report}");
}

#[test]
fn however_often_a_locked_instruction_is_met_and_a_lock_given_back_the_sums_are_right() {
    let _alone = crate::support::targets::alone();
    let program = program();
    for case in ["often", "each", "hand"] {
        for arguments in [&[][..], &["--every", "500"]] {
            let protected = protect(arguments, &program, case);
            if !works(&protected) {
                return;
            }
            let text = String::from_utf8_lossy(&protected.stdout);
            assert_eq!(text, "right 0\n", "{case} {arguments:?}: {protected:?}");
            assert_eq!(protected.status.code(), Some(5), "{case} {arguments:?}");
        }
    }
}
