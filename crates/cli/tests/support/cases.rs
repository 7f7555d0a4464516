//! The cases of `tests/programs/protect.c`: what its threads do while they may be isolated.

use std::path::PathBuf;

/// All cases that end by themselves.
pub const CASES: [&str; 22] = [
    "plain",
    "locks",
    "hand",
    "exits",
    "cancel",
    "async",
    "signal",
    "process-signal",
    "jump",
    "sleepers",
    "pause",
    "malloc",
    "fork",
    "exec",
    "crash",
    "abort",
    "exit",
    "spawn",
    "faults",
    "prints",
    "fpu",
    "threads",
];

/// The program, built.
pub fn program() -> PathBuf {
    super::c_program("protect", &["-w"]).expect("it compiles")
}
