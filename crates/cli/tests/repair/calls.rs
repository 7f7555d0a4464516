//! `sunder repair` on a program whose loop reaches its counters by calls through pointers and calls
//! libraries and the kernel: execution stays in the copies of its code at all of these calls.

use crate::support::repaired::{Run, rounds_until_moved};
use crate::support::{c_program, targets};

/// Rounds that take some tenths of a second.
const ROUNDS: u64 = 10_000_000;

/// The program under repair until its bytes were moved, with the output that it has natively.
fn moved(name: &str, flags: &[&str]) -> Option<Run> {
    let program = c_program(name, flags).expect("it compiles");
    rounds_until_moved(name, &program, ROUNDS)
}

#[test]
fn a_loop_that_calls_through_pointers_and_into_libraries_stays_in_its_copy() {
    let _alone = targets::alone();
    let Some(run) = moved("calls", &[]) else {
        return;
    };
    let moved = &run.repair().moved[0];
    let loops: Vec<_> = moved.code.iter().filter(|c| c.loops > 0).collect();
    assert!(!loops.is_empty(), "{moved:#?}");
    // A loop iteration outside of the copy would fault: there are millions.
    assert!(moved.faults < 500, "{moved:#?}");
}

/// The program stays in copies with loops: what leaves them faults, at most `most` times in millions of
/// rounds. On a busy machine the bytes may go back because it did not help, and for nothing else.
fn stays_in_copies(name: &str, flags: &[&str], most: u64) {
    let _alone = targets::alone();
    let other = |reason: &str| !reason.starts_with("it did not help");
    let stays = (0..3).any(|_| {
        let Some(run) = moved(name, flags) else {
            return true;
        };
        let moved = &run.repair().moved[0];
        let back = moved.rolled_back.as_ref();
        assert!(!back.is_some_and(|b| other(&b.reason)), "{}", run.stderr);
        back.is_none() && moved.code.iter().any(|c| c.loops > 0) && moved.faults < most
    });
    assert!(
        stays,
        "in none of three runs it stayed in copies with loops"
    );
}

/// The calls read moved pointers, which lead to three functions in turn.
#[test]
fn state_machines_that_call_their_next_state_stay_in_their_copies() {
    stays_in_copies("states", &[], 500);
}

/// The C library's lock looks at data of its own, far from a copy near the program: a loop that left its
/// copy there would fault twice a round, or its threads would wait for copies again and again.
#[test]
fn loops_that_take_locks_of_the_c_library_stay_in_their_copies() {
    stays_in_copies("mutexes", &[], 500);
}

/// A copy may leave out a way on which registers are restored, and each time that a thread takes it, it
/// faults behind it. So often as here it must come into the copy.
#[test]
fn ways_that_are_taken_often_come_into_the_copies() {
    stays_in_copies("ways", &["-O2"], 3000);
}

/// Threads wait in the kernel for words on a page of which bytes have moved. The C library waits for a
/// read-write lock in a call behind which two of its ways join; when it fails, it ends the program.
#[test]
fn read_write_locks_beside_moved_bytes_work() {
    let _alone = targets::alone();
    moved("beside_locks", &[]);
}

/// When a thread ends, the kernel looks for the robust mutexes that it holds where they were, and says
/// nothing where it finds no memory.
#[test]
fn robust_mutexes_beside_moved_bytes_are_told_of_their_owners_death() {
    let _alone = targets::alone();
    moved("beside_locks", &["-DDIES"]);
}

/// The file of the program's memory shows where the bytes were: zeros. Before it is opened they go back.
#[test]
fn a_program_that_opens_its_memory_as_a_file_finds_its_bytes_there() {
    let _alone = targets::alone();
    for flags in [&[][..], &["-DSTREAM"], &["-DBARE"]] {
        let Some(run) = moved("memory_file", flags) else {
            return;
        };
        let back = run
            .repair()
            .moved
            .iter()
            .find_map(|m| m.rolled_back.as_ref());
        let reason = back.map_or("", |back| back.reason.as_str());
        assert!(
            reason.contains("opened its memory"),
            "{flags:?}: {}",
            run.stderr
        );
    }
}
