//! Programs under `sunder protect` that are not made for it: memory that the C library
//! gives back from inside. Whatever they do they do as they would natively. Judged by
//! output and status, never by time.

mod support;

use std::path::Path;
use std::process::{Command, Output, Stdio};

/// Runs a command with a limit that only a hang reaches.
fn output(command: &mut Command) -> Output {
    let words: Vec<_> = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(ToOwned::to_owned)
        .collect();
    Command::new("timeout")
        .args(["-s", "KILL", "120"])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("timeout runs")
}

/// `sunder protect OPTIONS -- PROGRAM ARGUMENTS`; `None`, with a line that says so, if
/// threads can't be stopped here.
fn protect(options: &[&str], program: &Path, arguments: &[&str]) -> Option<Output> {
    support::usual_signals();
    let mut command = Command::new(env!("CARGO_BIN_EXE_sunder"));
    command.arg("protect").args(options).arg("--").arg(program);
    let done = output(command.args(arguments));
    let said = String::from_utf8_lossy(&done.stderr);
    if said.contains("can't be stopped") {
        println!("SKIP: {said}");
        return None;
    }
    Some(done)
}

/// What isolated threads see of memory that others give back and get anew, told by plain
/// stores alone: never what was there before.
#[test]
fn memory_that_the_library_unmaps_from_inside_is_never_seen_again() {
    let _alone = support::targets::alone();
    let program = support::c_program("remapped", &["-w"]).expect("gcc is there");
    for options in [
        &["--isolate-global", "shared"][..],
        &["--isolate-global", "shared", "--every", "300"],
    ] {
        let Some(done) = protect(options, &program, &["1000"]) else {
            return;
        };
        assert_eq!(done.stdout, b"0 stale\n", "{options:?}: {done:?}");
        assert!(done.status.success(), "{done:?}");
    }
}
