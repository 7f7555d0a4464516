//! Programs of musl, whose loader would not start them with our libraries, which need glibc.

use crate::support::{c_program, sunder};
use std::path::{Path, PathBuf};
use std::process::Output;

/// What the command `musl-gcc` gives to gcc.
const SPECS: &str = "/usr/lib/x86_64-linux-musl/musl-gcc.specs";

const WHY: &str = "it uses another C library than glibc";

/// A program of two threads, which prints a line.
fn program() -> Option<PathBuf> {
    if !Path::new(SPECS).exists() {
        println!("SKIP: musl-gcc is not installed; setup/debian-packages installs it");
        return None;
    }
    c_program("static", &["-specs", SPECS])
}

/// What `sunder ARGUMENTS PROGRAM` printed on standard error, after the program's own line on
/// standard output.
fn said(arguments: &[&str], program: &Path) -> String {
    let output: Output = sunder()
        .args(arguments)
        .arg(program)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.stdout, b"checksum 400000000\n", "{said}");
    assert!(output.status.success(), "{said}");
    said
}

#[test]
fn they_are_observed_without_the_library_and_the_report_says_why() {
    let Some(program) = program() else { return };
    let report = said(&["detect", "--"], &program);
    let words: Vec<&str> = report.split_whitespace().collect();
    let why = format!("nothing was preloaded, because {WHY}.");
    assert!(words.join(" ").contains(&why), "{report}");
}

#[test]
fn they_run_natively_under_the_remedies_which_say_why() {
    let Some(program) = program() else { return };
    for command in [
        ["run", "--placement", "hoard", "--"].as_slice(),
        &["protect", "--"],
        &["repair", "--"],
        &["cure", "--"],
    ] {
        let told = said(command, &program);
        assert_eq!(told.lines().count(), 1, "{command:?}: {told}");
        assert!(
            told.ends_with(&format!(" natively: {WHY}\n")),
            "{command:?}: {told}"
        );
    }
}

/// The shell has the library, and would hand it down.
#[test]
fn they_are_started_by_programs_that_are_observed() {
    let Some(program) = program() else { return };
    let script = ["-c", "\"$0\"; exit $?"];
    for follow in [["--follow-children"].as_slice(), &[]] {
        let before = [["detect"].as_slice(), follow, &["--", "sh"], &script].concat();
        said(&before, &program);
    }
    // In place of the shell.
    said(&["detect", "--", "sh", "-c", "exec \"$0\""], &program);
}
