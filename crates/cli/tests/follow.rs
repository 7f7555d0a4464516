//! Programs that run others: with `--follow-children` what those share is
//! reported, without it the report says that they were not looked at.

mod support;

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use sunder_findings::{Findings, Sharing};
use sunder_workloads::Variant;
use support::targets::{
    alone, as_expected, build, falsely_shared, global, open, side_by_side, workload,
};
use support::{c_program, plain_sunder};

const NOT_LOOKED_AT: &str = "started other processes, which were not looked at";

fn detect(options: &[&str], program: &Path, arguments: &[&str]) -> Result<Findings, String> {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    let mut command = plain_sunder();
    command.args(["detect", "--quiet"]).args(options).arg("-o");
    command.arg(&file).arg("--").arg(program).args(arguments);
    let seen = command.output().expect("sunder starts");
    let told = String::from_utf8_lossy(&seen.stderr);
    assert_eq!((seen.status.code(), told.as_ref()), (Some(0), ""));
    open(&file)
}

/// `tests/programs/forks.c`, compiled once: a program that is replaced while it
/// runs has a deleted file.
fn forks() -> PathBuf {
    static COMPILED: OnceLock<PathBuf> = OnceLock::new();
    let compile = || c_program("forks", &[]).expect("it compiles without flags");
    COMPILED.get_or_init(compile).clone()
}

fn says(result: &Findings, what: &str) -> bool {
    result.limits.iter().any(|l| l.contains(what))
}

fn nothing_found(result: &Findings) -> bool {
    result.findings.iter().all(|f| f.sharing == Sharing::True)
}

#[test]
fn threads_of_children_are_seen() {
    let program = forks();
    for how in ["fork", "exec"] {
        side_by_side(how, || {
            let result = detect(&["--follow-children"], &program, &[how])?;
            assert!(!says(&result, NOT_LOOKED_AT), "{:#?}", result.limits);
            assert_eq!(result.program.path.as_deref(), program.to_str());
            // The first thread of two processes, and two more in the child.
            assert_eq!(result.run.threads, 4);
            falsely_shared(&result, global("tallies")).map(|_| ())
        });
    }
}

#[test]
fn a_script_that_starts_a_program_twice_gives_a_finding_for_each() {
    let folder = tempfile::tempdir().expect("a folder");
    let script = folder.path().join("twice.sh");
    let program = build("thread_stats", Variant::Shared);
    let line = format!(
        "{} 2 {}\n",
        program.display(),
        workload("thread_stats").size
    );
    std::fs::write(&script, line.repeat(2)).expect("written");
    side_by_side("twice", || {
        let result = detect(
            &["--follow-children"],
            Path::new("sh"),
            &[script.to_str().expect("utf-8")],
        )?;
        let of_stats: Vec<_> = result
            .findings
            .iter()
            .filter(|f| global("stats")(f))
            .collect();
        if of_stats.len() != 2 {
            return Err(format!("{} findings instead of 2", of_stats.len()));
        }
        as_expected(of_stats[0], "thread_stats")?;
        as_expected(of_stats[1], "thread_stats")
    });
}

#[test]
fn without_the_option_children_are_left_out_and_this_is_said() {
    let _alone = alone();
    let program = forks();
    for how in ["fork", "exec"] {
        for observer in ["perf", "timer"] {
            if observer == "perf" && !support::perf_works() {
                continue;
            }
            let result = detect(&["--observer", observer], &program, &[how]);
            let result = result.expect("a result");
            let wanted = match observer {
                "perf" => NOT_LOOKED_AT,
                _ => "which the timer observer can't follow",
            };
            assert!(
                says(&result, wanted),
                "{how} {observer}: {:#?}",
                result.limits
            );
            assert!(nothing_found(&result), "{how} {observer}");
        }
    }
}

#[test]
fn the_timer_observer_says_that_it_cannot_follow() {
    let _alone = alone();
    let result = detect(
        &["--observer", "timer", "--follow-children"],
        &forks(),
        &["fork"],
    );
    let result = result.expect("a result");
    assert!(says(&result, "can't follow"), "{:#?}", result.limits);
}

#[test]
fn a_program_that_starts_nothing_is_told_nothing_of_it() {
    let result = detect(&[], Path::new("true"), &[]).expect("a result");
    assert!(!says(&result, "other processes"), "{:#?}", result.limits);
}

#[test]
fn a_program_that_becomes_another_stays_observed() {
    let program = forks();
    // `env` becomes the program as well; the path is that of the last one.
    let path = program.to_str().expect("utf-8").to_owned();
    for (first, arguments) in [
        (program.as_path(), vec!["become"]),
        (Path::new("env"), vec!["NAME=value", &path, "work"]),
    ] {
        for observer in ["auto", "timer"] {
            side_by_side(observer, || {
                let result = detect(&["--observer", observer], first, &arguments)?;
                assert!(!says(&result, "other processes"), "{:#?}", result.limits);
                assert_eq!(result.program.path.as_deref(), Some(path.as_str()));
                falsely_shared(&result, global("tallies")).map(|_| ())
            });
        }
    }
}
