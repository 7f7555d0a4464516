//! `sunder patch` from end to end: a program that shares falsely is observed, its source is
//! patched with the diff and built again, and the finding is gone.

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::Command;
use sunder_findings::{Findings, Sharing};

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

/// The program's result with what it printed.
fn observed(folder: &Path) -> (Findings, Vec<u8>) {
    let json = folder.join("result.json");
    let mut command = support::sunder();
    let command = command
        .args(["detect", "--quiet", "--format", "json", "-o"])
        .arg(&json);
    let out = command.arg("--").arg(folder.join("words")).output();
    let out = out.expect("sunder runs");
    assert!(
        out.status.success(),
        "{}",
        String::from_utf8_lossy(&out.stderr)
    );
    (Findings::open(&json).expect("a result"), out.stdout)
}

fn shares(findings: &Findings) -> bool {
    let mut all = findings.findings.iter();
    all.any(|f| {
        !f.latent && f.sharing != Sharing::True && f.object.name.as_deref() == Some("counts")
    })
}

#[test]
fn the_diff_of_a_result_ends_the_false_sharing() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("words.c"), SOURCE).expect("written");
    build(folder);
    let (found, printed) = observed(folder);
    if !shares(&found) {
        return println!("SKIP: the threads did not run at once");
    }
    let mut command = support::sunder();
    let out = command
        .arg("patch")
        .arg(folder.join("result.json"))
        .arg("--root")
        .arg(folder)
        .output();
    let out = out.expect("sunder runs");
    let diff = String::from_utf8(out.stdout).expect("text");
    assert_eq!(out.status.code(), Some(0), "{diff}");
    assert!(
        diff.contains("+struct __attribute__((aligned(64))) count {"),
        "{diff}"
    );
    let fix = folder.join("fix.diff");
    std::fs::write(&fix, &diff).expect("written");
    let Ok(applied) = Command::new("patch")
        .args(["-p1", "-i"])
        .arg(&fix)
        .current_dir(folder)
        .output()
    else {
        return println!("SKIP: there is no program patch here");
    };
    assert!(
        applied.status.success(),
        "{}",
        String::from_utf8_lossy(&applied.stdout)
    );
    build(folder);
    let (after, again) = observed(folder);
    assert_eq!(printed, again);
    assert!(!shares(&after), "{:#?}", after.findings);
}

/// The trial builds, runs and observes copies. How much it gains is up to the machine.
#[test]
fn a_trial_works_on_copies_and_writes_the_best() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("words.c"), SOURCE).expect("written");
    build(folder);
    if !shares(&observed(folder).0) {
        return println!("SKIP: the threads did not run at once");
    }
    let mut command = support::sunder();
    let command = command
        .arg("patch")
        .arg(folder.join("result.json"))
        .arg("--root")
        .arg(folder);
    let command = command.args([
        "--build",
        "gcc -O2 -g -pthread -o words words.c",
        "--run",
        "./words",
    ]);
    let command = command
        .args(["--time", "1s", "-o"])
        .arg(folder.join("fix.diff"));
    let out = command.output().expect("sunder runs");
    let told = String::from_utf8(out.stdout).expect("text");
    assert!(told.contains("compiles     yes"), "{told}");
    assert!(told.contains("output equal yes"), "{told}");
    assert_eq!(
        std::fs::read_to_string(folder.join("words.c")).expect("there"),
        SOURCE
    );
    if out.status.code() == Some(0) {
        let fix = std::fs::read_to_string(folder.join("fix.diff")).expect("written");
        assert!(fix.starts_with("--- a/words.c"), "{fix}");
    }
}

#[test]
fn a_program_that_can_not_be_built_gives_one_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let folder = folder.path();
    std::fs::write(folder.join("words.c"), SOURCE).expect("written");
    build(folder);
    if !shares(&observed(folder).0) {
        return println!("SKIP: the threads did not run at once");
    }
    let mut command = support::sunder();
    let command = command
        .arg("patch")
        .arg(folder.join("result.json"))
        .arg("--root")
        .arg(folder);
    let command = command
        .args(["--build", "exit 7", "--run", "./words", "-o"])
        .arg(folder.join("fix.diff"));
    let out = command.output().expect("sunder runs");
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert_eq!(out.status.code(), Some(125), "{told}");
    assert!(
        told.contains("without any change, `exit 7` fails with exit status 7"),
        "{told}"
    );
    assert!(!folder.join("fix.diff").exists());
}
