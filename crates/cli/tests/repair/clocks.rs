//! Programs that have the time written beside falsely shared data. The vDSO, the kernel's library
//! in each program, then makes a system call with a pointer to bytes that may be moved away.

use crate::support::repaired::{Run, repaired, repaired_without_ptrace, strings, until_moved};
use crate::support::{c_program, targets};

fn clocks_are_written(
    name: &str,
    options: &[&str],
    run: impl Fn(&str, &[&str], &[&str]) -> Run,
    times: u64,
) -> Option<Run> {
    let program = c_program("clocks", &["-O1"])?;
    let program = program.to_str().expect("our own path").to_owned();
    let rounds = 300 * times;
    let arguments = [program, rounds.to_string()];
    let run = run(name, options, &strings(&arguments));
    let counted = 2 * rounds * 100_000;
    assert_eq!(
        String::from_utf8_lossy(&run.stdout),
        format!("failed 0 times, counted {counted}\n"),
        "{}",
        run.stderr
    );
    assert_eq!(run.status, Some(0), "{}", run.stderr);
    Some(run)
}

#[test]
fn clocks_of_cpu_time_are_written_to_moved_bytes() {
    let _alone = targets::alone();
    let run = until_moved("clocks", false, |times| {
        clocks_are_written("clocks", &[], repaired, times).expect("the README names the compiler")
    });
    if let Some(run) = run {
        assert_eq!(run.repair().hindrance, None, "{:#?}", run.repair());
    }
}

#[test]
fn so_they_are_where_the_library_is_loaded_at_the_beginning() {
    let _alone = targets::alone();
    until_moved("clocks", false, |times| {
        clocks_are_written("clocks-preloaded", &[], repaired_without_ptrace, times)
            .expect("the README names the compiler")
    });
}

#[test]
fn so_they_are_as_bytes_come_and_go() {
    let _alone = targets::alone();
    for seed in ["1", "2"] {
        let options = ["--chaos", seed];
        clocks_are_written("clocks-chaos", &options, repaired, 1);
        clocks_are_written("clocks-chaos", &options, repaired_without_ptrace, 1);
    }
}
