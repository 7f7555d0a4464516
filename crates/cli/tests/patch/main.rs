//! `sunder patch` from end to end: a program that shares falsely is observed, its source is
//! patched with the diff and built again, and the finding is gone.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use sunder_findings::Findings;
use support::targets::{falsely_shared, open, side_by_side, took};

/// Two threads count in elements of one array; the work beside the counts keeps the store buffer
/// from hiding the sharing.
const SOURCE: &str = "\
#include <pthread.h>
#include <stdio.h>

struct count {
    volatile long words, lines;
};
struct count counts[2] __attribute__((aligned(64)));

static void *work(void *argument)
{
    struct count *mine = argument;
    for (long i = 0; i < 40000000; i++) {
        mine->words += i & 7;
        if (i % 16 == 0)
            mine->lines++;
    }
    return NULL;
}

int main(void)
{
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], NULL, work, &counts[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    printf(\"%ld %ld\\n\", counts[0].words + counts[1].words, counts[0].lines + counts[1].lines);
    return 0;
}
";

fn build(folder: &Path) {
    let out = Command::new("gcc")
        .args(["-O2", "-g", "-pthread", "-o", "words", "words.c"])
        .current_dir(folder)
        .output()
        .expect("gcc is needed, as the README says");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
}

/// The program's result with what it printed. An error if its threads did not run side by side.
fn observed(folder: &Path) -> Result<(Findings, Vec<u8>), String> {
    let json = folder.join("result.json");
    let mut command = support::sunder();
    let command = command
        .args(["detect", "--quiet", "--format", "json", "-o"])
        .arg(&json);
    let out = command.arg("--").arg(folder.join("words")).output();
    let out = out.expect("sunder runs");
    let complaint = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{complaint}");
    let result = open(&json)?;
    match result.run.at_once_percent {
        Some(at_once) if at_once >= 50.0 => Ok((result, out.stdout)),
        Some(at_once) => {
            // However much CPU time they took, they did not run side by side.
            took(0.0, result.run.seconds);
            Err(format!("the threads ran at once for {at_once} %"))
        }
        None => Err("it is not known whether the threads ran at once".into()),
    }
}

fn shares(findings: &Findings) -> bool {
    falsely_shared(findings, |f| f.object.name.as_deref() == Some("counts")).is_ok()
}

/// Builds the program in a folder, observes it until its false sharing is found, and calls `act`
/// with the folder and what the program printed.
fn with_a_finding(what: &str, mut act: impl FnMut(&Path, &[u8]) -> Result<(), String>) {
    side_by_side(what, || {
        let folder = tempfile::tempdir().expect("a folder");
        let folder = folder.path();
        std::fs::write(folder.join("words.c"), SOURCE).expect("written");
        build(folder);
        let (found, printed) = observed(folder)?;
        if !shares(&found) {
            return Err(format!("not found: {:?}", found.limits));
        }
        act(folder, &printed)
    });
}

/// `sunder patch` of the folder's result, with these arguments: status, output and complaint.
fn patched(folder: &Path, more: &[&str]) -> (Option<i32>, String, String) {
    let mut command = support::sunder();
    let command = command
        .arg("patch")
        .arg(folder.join("result.json"))
        .arg("--root")
        .arg(folder);
    let out = command.args(more).output().expect("sunder runs");
    let text = |bytes| String::from_utf8(bytes).expect("text");
    (out.status.code(), text(out.stdout), text(out.stderr))
}

#[test]
fn the_diff_of_a_result_ends_the_false_sharing() {
    with_a_finding("a diff", |folder, printed| {
        let (status, diff, _) = patched(folder, &[]);
        assert_eq!(status, Some(0), "{diff}");
        let aligned = "+struct __attribute__((aligned(64))) count {";
        assert!(diff.contains(aligned), "{diff}");
        std::fs::write(folder.join("fix.diff"), &diff).expect("written");
        let applied = Command::new("patch")
            .args(["-p1", "-i", "fix.diff"])
            .current_dir(folder)
            .output()
            .expect("patch is installed by setup/debian-packages");
        let told = String::from_utf8_lossy(&applied.stdout);
        assert!(applied.status.success(), "{told}");
        build(folder);
        let (after, again) = observed(folder)?;
        assert_eq!(printed, again);
        assert!(!shares(&after), "{:#?}", after.findings);
        Ok(())
    });
}

/// The trial builds, runs and observes copies. How much it gains is up to the machine.
#[test]
fn a_trial_works_on_copies_and_writes_the_best() {
    with_a_finding("a trial", |folder, _| {
        let fix = folder.join("fix.diff");
        let compile = "gcc -O2 -g -pthread -o words words.c";
        let fix_name = fix.to_str().expect("text");
        let run = ["--build", compile, "--run", "./words"];
        let out = ["--time", "1s", "-o", fix_name];
        let (status, told, _) = patched(folder, &[run, out].concat());
        assert!(told.contains("compiles     yes"), "{told}");
        assert!(told.contains("output equal yes"), "{told}");
        let source = std::fs::read_to_string(folder.join("words.c"));
        assert_eq!(source.expect("there"), SOURCE);
        if status == Some(0) {
            let fix = std::fs::read_to_string(fix).expect("written");
            assert!(fix.starts_with("--- a/words.c"), "{fix}");
        } else {
            // What was tried last may have run on one processor.
            assert!(!fix.exists(), "{told}");
        }
        Ok(())
    });
}

#[test]
fn a_program_that_can_not_be_built_gives_one_sentence() {
    with_a_finding("no build", |folder, _| {
        let fix = folder.join("fix.diff");
        let fix_name = fix.to_str().expect("text");
        let run = ["--build", "exit 7", "--run", "./words", "-o", fix_name];
        let (status, _, told) = patched(folder, &run);
        assert_eq!(status, Some(125), "{told}");
        let why = "without any change, `exit 7` fails with exit status 7";
        assert!(told.contains(why), "{told}");
        assert!(!fix.exists());
        Ok(())
    });
}

/// On one processor no two threads meet, so that nobody can tell whether their data would.
#[test]
fn a_result_that_does_not_know_gives_no_all_clear() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("words.c"), SOURCE).expect("written");
    build(folder);
    let json = folder.join("result.json");
    let mut command = support::sunder();
    let command = command.args(["detect", "--quiet", "--format", "json", "-o"]);
    let command = command.arg(&json).args(["--", "taskset", "-c", "0"]);
    let out = command.arg(folder.join("words")).output();
    assert!(out.expect("sunder runs").status.success());
    let (status, told, _) = patched(folder, &[]);
    assert_eq!(status, Some(122), "{told}");
    assert!(
        told.starts_with("# Not known whether there is false sharing"),
        "{told}"
    );
}
