//! `sunder protect` leaves a program in which nothing is isolated as it is. Of an isolated program
//! it leaves what others can see: the code of its C library, its arguments and its environment.

use crate::support::built;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

fn program() -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("native");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/native.c");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-w", "-pthread"]);
    built::once(&program, compiler.arg(source)).expect("it compiles");
    program
}

/// The program under `protect`, with a time limit that only a hang reaches.
fn protect(options: &[&str], words: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", "120", env!("CARGO_BIN_EXE_sunder"), "protect"]);
    command.args(options).arg("--").arg(program()).args(words);
    command.stdin(Stdio::null());
    command
}

/// Sunder's messages; `None` where threads can't be stopped, which it says too.
fn said(output: &Output) -> Option<String> {
    let complaints = String::from_utf8_lossy(&output.stderr);
    if complaints.contains("can't be stopped") {
        println!("SKIP: {complaints}");
        return None;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    Some(String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn the_code_of_a_program_without_false_sharing_is_as_in_its_files() {
    let _alone = crate::support::targets::alone();
    let output = protect(&[], &["apart"]).output().expect("timeout runs");
    let text = said(&output).expect("no thread has to be stopped");
    assert_eq!(text, "code as in the file\narguments 1, environment 1\n");
}

#[test]
fn the_code_is_changed_once_somebody_is_isolated_and_the_arguments_are_still_told() {
    let _alone = crate::support::targets::alone();
    let options = ["--isolate-global", "shared"];
    let output = protect(&options, &["beside", "two  words", ""])
        .env("EMPTY", "")
        .output()
        .expect("timeout runs");
    let Some(text) = said(&output) else { return };
    assert_eq!(text, "1\n1\ncode changed\narguments 1, environment 1\n");
}

#[test]
fn ps_shows_the_arguments_of_a_program_with_isolated_threads() {
    let _alone = crate::support::targets::alone();
    let mut child = protect(
        &["--isolate-global", "shared"],
        &["beside", "wait", "seen by ps"],
    )
    .stdout(Stdio::piped())
    .stderr(Stdio::null())
    .spawn()
    .expect("timeout runs");
    let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let told = lines
        .map_while(Result::ok)
        .find(|line| line.starts_with("arguments"));
    let shown = Command::new("ps")
        .args(["-eo", "args="])
        .output()
        .expect("ps is there");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    let wanted = format!("{} beside wait seen by ps", program().display());
    // `timeout` passes the signal on to all its children, and Sunder to the program.
    // SAFETY: takes two integers.
    unsafe { libc::kill(child.id() as i32, libc::SIGTERM) };
    let _ = child.wait();
    assert!(told.is_some(), "it reported at its end");
    assert!(shown.lines().any(|line| line == wanted), "{shown}");
}
