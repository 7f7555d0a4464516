//! Bytes on the stack of a thread that waits are moved, and the thread finds its stack as it should be
//! whatever ends its wait: the others' end, a time, a signal, a jump out of a handler, a cancellation.
//! Judged by what was moved and by what the program finds, never by time.

use crate::support::repaired::{Run, repaired, repaired_without_ptrace, report, until_moved};
use crate::support::{c_program, targets};

/// Rounds of the program's threads for about a second.
const ROUNDS: u64 = 100_000_000;

/// Runs `stack_owner.c`.
fn owner(mode: &str, rounds: u64, repaired: impl Fn(&str, &[&str], &[&str]) -> Run) -> Run {
    let program = c_program("stack_owner", &[]).expect("it compiles");
    let program = program.to_str().expect("our own path");
    let name = format!("stacks-{mode}");
    let run = repaired(&name, &[], &[program, mode, &rounds.to_string()]);
    let said = String::from_utf8_lossy(&run.stdout);
    assert_eq!(run.status, Some(0), "{said}{}", run.stderr);
    let wanted = match mode {
        "cancel" => "cancel: cleaned up with the right counts\ncancel: cancelled 1\n".to_owned(),
        _ => format!("{mode}: counts right, handlers elsewhere 0, good\n"),
    };
    assert_eq!(said, wanted, "{}", run.stderr);
    run
}

#[test]
fn variables_of_a_thread_that_waits_are_moved_until_it_goes_on() {
    let run = until_moved("data on a stack", false, |times| {
        owner("join", times * ROUNDS, repaired)
    });
    let Some(run) = run else { return };
    let [moved] = &run.repair().moved[..] else {
        panic!("{:#?}", run.repair());
    };
    assert_eq!(moved.groups.len(), 2, "a line for each thread: {moved:#?}");
    // The first thread outlives the others, and its pages are back by then.
    assert!(moved.rolled_back.is_some(), "{moved:#?}");
}

#[test]
fn whatever_ends_its_wait_the_thread_finds_its_stack() {
    let modes = [
        "restart",
        "interrupt",
        "sigstack",
        "once",
        "jump",
        "timed",
        "sleep",
        "poll",
        "fork",
        "cancel",
    ];
    for mode in modes {
        // Else this would say nothing.
        until_moved(&format!("what {mode} waits beside"), false, |times| {
            owner(mode, times * ROUNDS / 2, repaired)
        });
    }
}

/// A thread can't be kept off its stack by a library that stops no threads.
#[test]
fn without_stopping_threads_stacks_stay_where_they_are() {
    targets::side_by_side("a stack of a program whose threads are not stopped", || {
        let run = owner("join", 2 * ROUNDS, repaired_without_ptrace);
        targets::open(&report("stacks-join"))?;
        let repair = run.repair();
        assert!(repair.moved.is_empty(), "{repair:#?}");
        let refused = &repair.refused;
        // It is not known then.
        if refused
            .iter()
            .any(|r| r.reason.contains("not enough was seen"))
            || refused.is_empty()
        {
            return Err(format!("{repair:#?}"));
        }
        let why = |r: &sunder_findings::Unrepaired| r.reason.contains("stack");
        assert!(refused.iter().all(why), "{repair:#?}");
        Ok(())
    });
}
