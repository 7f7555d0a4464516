//! `sunder repair` on a program whose loop reaches its counters by calls through pointers and calls
//! libraries and the kernel: execution stays in the copies of its code at all of these calls.

use crate::support::repaired::{repaired, until_moved};
use crate::support::{c_program, targets};
use std::process::Command;

/// Rounds that take some tenths of a second.
const ROUNDS: u64 = 10_000_000;

#[test]
fn a_loop_that_calls_through_pointers_and_into_libraries_stays_in_its_copy() {
    let _alone = targets::alone();
    let program = c_program("calls", &[]).expect("it compiles");
    let path = program.to_str().expect("our own path");
    let run = until_moved("calls", false, |times| {
        let rounds = (2 * times * ROUNDS).to_string();
        let native = Command::new(&program).arg(&rounds).output();
        let run = repaired("calls", &[], &[path, &rounds]);
        assert_eq!(
            run.stdout,
            native.expect("it runs").stdout,
            "{}",
            run.stderr
        );
        assert_eq!(run.status, Some(0), "{}", run.stderr);
        run
    });
    let Some(run) = run else { return };
    let moved = &run.repair().moved[0];
    let loops: Vec<_> = moved.code.iter().filter(|c| c.loops > 0).collect();
    assert!(!loops.is_empty(), "{moved:#?}");
    // A loop iteration outside of the copy would fault: there are millions.
    assert!(moved.faults < 500, "{moved:#?}");
}
