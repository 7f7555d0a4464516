//! Memory that was mapped with `MAP_SHARED` and has no file is moved as long as no other process has
//! it. `in_common.c` checks that every process sees what it must, natively and under repair.

use crate::support::repaired::{Run, repaired};
use crate::support::{c_program, targets};
use std::process::Command;
use sunder_findings::RolledBack;

/// Rounds that take half a second with false sharing.
const ROUNDS: u64 = 400_000_000;
const FORKED: &str = "the program started another process or program";

/// Runs one case. The memory must be what it must be, whatever was moved.
fn run(case: &str, rounds: u64, options: &[&str]) -> Run {
    let program = c_program("in_common", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    let rounds = rounds.to_string();
    let run = repaired(
        &format!("in_common-{case}{}", options.concat()),
        options,
        &[program, case, &rounds],
    );
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(
        (said.as_ref(), run.status),
        ("wrong 0\n", Some(0)),
        "{}",
        run.stderr
    );
    run
}

/// The outcome for [`targets::side_by_side`], which knows from the report whether threads ran so.
fn judged(run: &Run, case: &str, options: &[&str], holds: bool) -> Result<(), String> {
    let name = format!("in_common-{case}{}", options.concat());
    targets::open(&crate::support::repaired::report(&name))?;
    if holds {
        return Ok(());
    }
    Err(format!("{:#?}", run.repair()))
}

#[test]
fn natively_every_process_sees_what_it_must() {
    let program = c_program("in_common", &[]).expect("it compiles");
    for case in ["alone", "before", "during", "twice"] {
        let output = Command::new(&program).args([case, "10000000"]).output();
        assert_eq!(output.expect("it runs").stdout, b"wrong 0\n", "{case}");
    }
}

#[test]
fn memory_in_common_with_no_other_process_is_moved() {
    targets::side_by_side("anonymous shared memory", || {
        let run = run("alone", 4 * ROUNDS, &[]);
        judged(&run, "alone", &[], !run.repair().moved.is_empty())
    });
}

#[test]
fn memory_that_another_process_has_is_left_alone() {
    targets::side_by_side("memory that a child has", || {
        let run = run("before", 2 * ROUNDS, &[]);
        assert!(run.repair().moved.is_empty(), "{:#?}", run.repair());
        let mut left = run.repair().refused.iter();
        let said = left.any(|one| one.reason.contains("may share its memory"));
        judged(&run, "before", &[], said)
    });
    targets::side_by_side("memory that is mapped twice", || {
        let run = run("twice", 2 * ROUNDS, &[]);
        assert!(run.repair().moved.is_empty(), "{:#?}", run.repair());
        let mut left = run.repair().refused.iter();
        let said = left.any(|one| one.reason.contains("mapped twice"));
        judged(&run, "twice", &[], said)
    });
}

#[test]
fn bytes_go_back_before_another_process_gets_them() {
    targets::side_by_side("memory that children get", || {
        let run = run("during", 6 * ROUNDS, &[]);
        let went = |back: &Option<RolledBack>| back.as_ref().is_some_and(|b| b.reason == FORKED);
        let mut moves = run.repair().moved.iter().flat_map(|moved| &moved.moves);
        let went_back = moves.any(|one| went(&one.rolled_back));
        judged(&run, "during", &[], went_back)
    });
}

#[test]
fn no_process_notices_random_moves() {
    for seed in ["1", "2", "3"] {
        for case in ["alone", "before", "during", "twice"] {
            run(case, ROUNDS / 2, &["--chaos", seed]);
        }
    }
}
