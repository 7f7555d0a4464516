//! Memory of other kinds than the program's variables and heap: files that are mapped privately and
//! only read, and anonymous mappings. `input.c` and `in_common.c` check themselves that every thread
//! and process sees what it must.

use crate::support::limited::output;
use crate::support::{c_program, targets};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use sunder_workloads::Variant;

/// Pages of the file that is mapped.
const PAGES: usize = 2048;
const PAGE: usize = 4096;

/// A file for `input.c`, written once: a file that a program has mapped is not replaced.
fn file() -> PathBuf {
    static WRITTEN: OnceLock<PathBuf> = OnceLock::new();
    WRITTEN.get_or_init(write_file).clone()
}

fn write_file() -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("input-of-protect");
    let mut bytes: Vec<u8> = (0..PAGES * PAGE).map(|n| (n * 7 + n / 256) as u8).collect();
    for page in bytes.chunks_mut(PAGE).take(2) {
        page[1..3].fill(7);
    }
    // A program of an earlier test run may still map the old one.
    let aside = path.with_extension("new");
    std::fs::write(&aside, bytes).expect("our own folder");
    std::fs::rename(&aside, &path).expect("same folder");
    path
}

/// A run under `protect`: what the program did, what Sunder said, and its report.
struct Run {
    program: Output,
    said: String,
    report: serde_json::Value,
}

fn protect(name: &str, options: &[&str], words: &[&str]) -> Run {
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("protect-{name}.json"));
    let _ = std::fs::remove_file(&report);
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.args(["protect", "--report"]).arg(&report);
    let program = output(command.args(options).arg("--").args(words));
    let text = std::fs::read_to_string(&report).expect("the report was written");
    Run {
        said: String::from_utf8_lossy(&program.stderr).into_owned(),
        report: serde_json::from_str(&text).expect("JSON"),
        program,
    }
}

impl Run {
    /// What the program prints is the same as natively.
    fn is_as(&self, expected: &[u8]) {
        let stdout = String::from_utf8_lossy(&self.program.stdout);
        assert_eq!(stdout, String::from_utf8_lossy(expected), "{}", self.said);
        assert_eq!(self.program.status.code(), Some(0), "{}", self.said);
    }

    fn count(&self, name: &str) -> u64 {
        self.report[name].as_u64().expect("a number")
    }
}

/// The words of a command line for `input.c`.
fn input(case: &str, rounds: u64) -> Vec<String> {
    let program = c_program("input", &["-O0"]).expect("it compiles");
    let path = |path: PathBuf| path.to_str().expect("our own path").to_owned();
    vec![path(program), case.into(), path(file()), rounds.to_string()]
}

fn natively(words: &[&str]) -> Vec<u8> {
    output(Command::new(words[0]).args(&words[1..])).stdout
}

const SUMS: [&str; 2] = ["--isolate-global", "sums"];

/// Each episode would end at the first byte of the file; there are several commits in one, each 10 ms
/// after the other.
#[test]
fn threads_read_a_private_mapping_of_a_file_while_they_are_isolated() {
    let words = input("read", 60);
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let native = natively(&words);
    targets::side_by_side("a file that is mapped privately", || {
        let run = protect("input-read", &SUMS, &words);
        run.is_as(&native);
        let (commits, episodes) = (run.count("commits"), run.count("episodes"));
        if commits > 2 * episodes {
            return Ok(());
        }
        Err(format!(
            "{commits} commits in {episodes} episodes: {}",
            run.said
        ))
    });
}

#[test]
fn what_threads_write_to_a_private_mapping_of_a_file_is_seen_by_all() {
    let _alone = targets::alone();
    for (case, rounds) in [("written", 20), ("late", 1)] {
        let words = input(case, rounds);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let native = natively(&words);
        for options in [&SUMS[..], &["--isolate-global", "sums", "--every", "700"]] {
            protect(&format!("input-{case}"), options, &words).is_as(&native);
        }
    }
}

/// Runs `in_common.c` for half a second and more.
fn in_common(case: &str) -> Run {
    let program = c_program("in_common", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    let run = protect(
        &format!("in_common-{case}"),
        &[],
        &[program, case, "1600000000"],
    );
    run.is_as(b"wrong 0\n");
    run
}

#[test]
fn anonymous_mappings_of_one_process_are_isolated() {
    for (case, name) in [
        ("alone", "shared anonymous memory"),
        ("private", "anonymous memory"),
    ] {
        targets::side_by_side(name, || {
            let run = in_common(case);
            let object = &run.report["objects"][0]["name"];
            if object == name && run.count("commits") > 0 {
                return Ok(());
            }
            Err(run.said)
        });
    }
}

#[test]
fn memory_that_another_process_has_is_not_isolated() {
    targets::side_by_side("memory that a child has", || {
        let run = in_common("before");
        assert_eq!(run.count("episodes"), 0, "{}", run.said);
        if run.said.contains("may share its memory") {
            return Ok(());
        }
        Err(run.said)
    });
    in_common("during");
    in_common("twice");
}

/// Runs `on_stack.c`.
fn on_stack(case: &str, rounds: u64, options: &[&str]) -> Run {
    let program = c_program("on_stack", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    let rounds = rounds.to_string();
    let run = protect(
        &format!("on_stack-{case}"),
        options,
        &[program, case, &rounds],
    );
    run.is_as(b"wrong 0\n");
    run
}

#[test]
fn data_in_the_frame_of_a_thread_that_waits_are_isolated() {
    targets::side_by_side("data on a stack", || {
        let run = on_stack("join", 3_000_000_000, &[]);
        if run.count("commits") > 2 * run.count("episodes") {
            return Ok(());
        }
        Err(run.said)
    });
}

#[test]
fn frames_that_end_or_are_left_by_a_jump_keep_what_is_in_them() {
    let _alone = targets::alone();
    for case in ["turns", "jump", "wakes"] {
        for options in [&[][..], &["--every", "700"]] {
            on_stack(case, 400_000_000, options);
        }
    }
}

/// Nodes of two threads lie in turn in one mapping, over many lines of which one after the other is seen
/// in use. Natively the program takes more than ten times as long.
#[test]
fn all_lines_of_a_page_that_threads_use_are_isolated() {
    const TRIES: usize = 4;
    let workload = targets::workload("timer_lists");
    let build = |variant| targets::build("timer_lists", variant);
    let ticks = (4 * workload.size).to_string();
    let program = build(Variant::Shared);
    let words = [program.to_str().expect("our own path"), "2", &ticks];
    // Both variants write the same.
    let fixed = build(Variant::Fixed);
    let native = natively(&[fixed.to_str().expect("our own path"), "2", &ticks]);
    targets::side_by_side("nodes in turn", || {
        let mut said = String::new();
        for _ in 0..TRIES {
            let run = protect("timer_lists", &[], &words);
            run.is_as(&native);
            // A page is committed every 10 ms; before it was shared for good, once by each thread.
            if run.count("commits") >= 10 {
                return Ok(());
            }
            said = run.said;
        }
        Err(said)
    });
}

/// Loops that wait are executed natively, and so is the code around them, except for other loops.
#[test]
fn threads_that_wait_for_plain_stores_see_what_was_stored_before() {
    let _alone = targets::alone();
    // Between two waits a thread computes for tens of milliseconds: threads that wait more often are left alone.
    for (name, shared, rounds) in [("waits", "rows", "1500000"), ("polls", "words", "10000000")] {
        let program = c_program(name, &["-O2"]).expect("it compiles");
        let program = program.to_str().expect("our own path");
        let words = [program, "30", rounds];
        let run = protect(name, &["--isolate-global", shared], &words);
        run.is_as(&natively(&words));
        assert!(run.count("episodes") > 0, "{}", run.said);
    }
}
