//! The tool is ended by a signal, or its system calls fail, or it has too little of something: the
//! program does what it does natively, and nothing is left behind. What happens is drawn from the
//! seed, so that a failure tells how to make the run again; the verdict does not depend on when it
//! happens.

use crate::support::plain_sunder;
use std::path::Path;
use sunder_mishaps::{Kind, Mode, Places, Prepared, Subject, Verdict};

/// Runs of each kind for each mode; the variable `SUNDER_MISHAPS` changes it.
const TIMES: u64 = 4;
/// The work of the programs, in the unit of [`Subject::of`]: they live for about as long as the tool
/// needs to begin and to act.
const SCALE: f64 = 0.2;

fn times() -> u64 {
    let told = std::env::var("SUNDER_MISHAPS").ok();
    told.and_then(|t| t.parse().ok()).unwrap_or(TIMES)
}

/// Each run has another seed in each mode, so that together they are of many kinds.
fn tried(name: &str) {
    let mode = Mode::named(name).expect("a mode");
    if name.contains("emulated") && crate::support::installed::installed("qemu-x86_64").is_none() {
        return;
    }
    let command = plain_sunder();
    let sunder = Path::new(command.get_program());
    let places = Places::new().expect("folders");
    let subjects = Subject::of(mode, sunder, places.own(), SCALE).expect("our program compiles");
    let own = subjects.into_iter().next().expect("a program of ours");
    let prepared = Prepared::new(mode, own, sunder, &places).unwrap_or_else(|e| panic!("{e}"));
    if prepared.usual().calls.is_empty() {
        println!("SKIP: no system call is chosen: strace is not installed; setup/debian-packages");
    }
    let first: u64 = name.bytes().map(u64::from).sum::<u64>() * 100;
    for kind in [Kind::Kills, Kind::Faults] {
        for seed in first..first + times() {
            let run = prepared.run(kind, seed).expect("it can be run");
            if let Verdict::Wrong(why) = &run.verdict {
                panic!(
                    "{name}, {kind:?}, seed {seed}: {}: {why}\n{}\nIts output:\n{}",
                    run.mishap,
                    run.outcome.stderr,
                    String::from_utf8_lossy(&run.outcome.stdout)
                );
            }
        }
    }
}

#[test]
fn of_detect() {
    tried("detect");
}

#[test]
fn of_detect_that_measures() {
    tried("detect --measure");
}

#[test]
fn of_detect_with_timers() {
    tried("detect --observer timer");
}

#[test]
fn of_detect_by_isolation() {
    tried("detect --observer isolate");
}

#[test]
fn of_protect() {
    tried("protect");
}

#[test]
fn of_eager_protect() {
    tried("protect --eager");
}

#[test]
fn of_repair() {
    tried("repair");
}

#[test]
fn of_cure() {
    tried("cure");
}

#[test]
fn of_attach() {
    tried("attach");
}

#[test]
fn of_attach_that_measures() {
    tried("attach --measure");
}

#[test]
fn of_attach_for_repair() {
    tried("attach --repair");
}

#[test]
fn of_run() {
    tried("run");
}

#[test]
fn of_trace() {
    tried("trace");
}

#[test]
fn of_emulated_trace() {
    tried("trace --via emulated");
}
