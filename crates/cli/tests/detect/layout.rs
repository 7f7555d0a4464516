//! Data lie under observation where they lie natively: nothing of ours allocates from the program's
//! heap. An array that straddles two lines, or a pair of blocks on one, does so under every mode.
//! `run` replaces the heap, so it is not among them. Blocks that a thread allocates after it has
//! started another lie 16 bytes higher for each: our library has thread-local words, so the C
//! library's table of each thread's variables, which it puts there, is one entry longer.

use crate::support::{c_program, sunder};
use std::os::unix::process::CommandExt;
use std::process::Command;
use sunder_findings::{Findings, LatentOn};

/// From now on, and in what it executes, the kernel places nothing at random.
fn without_randomization(command: &mut Command) {
    let place = || {
        // SAFETY: sets a number of the calling process.
        let set = unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        if set == -1 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(())
    };
    // SAFETY: the closure makes one system call.
    unsafe { command.pre_exec(place) };
}

/// The lines that differ, side by side.
fn differences(native: &str, seen: &str) -> Vec<String> {
    let pairs = native.lines().zip(seen.lines());
    let differ = pairs.filter(|(native, seen)| native != seen);
    let mut all: Vec<String> = differ.map(|(n, s)| format!("{n} | {s}")).collect();
    if native.lines().count() != seen.lines().count() {
        all.push("not as many lines".to_owned());
    }
    all
}

#[test]
fn data_lie_where_they_lie_natively() {
    let Some(program) = c_program("where_it_lies", &["-O2", "-pthread"]) else {
        return;
    };
    let mut alone = Command::new(&program);
    without_randomization(&mut alone);
    let Ok(native) = alone.output() else {
        println!("SKIP: addresses can't be had without randomization here");
        return;
    };
    let native = String::from_utf8(native.stdout).expect("text");
    assert!(native.lines().count() > 160, "{native}");
    let modes: [&[&str]; 6] = [
        &["detect", "-q"],
        &["detect", "-q", "--observer", "timer"],
        &["detect", "-q", "--observer", "isolate"],
        &["protect"],
        &["repair"],
        &["cure"],
    ];
    for mode in modes {
        let mut under = Command::new(sunder().get_program());
        without_randomization(&mut under);
        let output = under.args(mode).arg("--").arg(&program).output();
        let output = output.expect("sunder runs");
        let seen = String::from_utf8(output.stdout).expect("text");
        // The report follows the program's output.
        let own: String = seen
            .lines()
            .take(native.lines().count())
            .map(|line| format!("{line}\n"))
            .collect();
        let differ = differences(&native, &own);
        assert!(differ.is_empty(), "{mode:?}: {differ:#?}");
    }
}

/// A block that was requested at a multiple of a line's size starts nowhere else.
#[test]
fn only_a_block_that_could_start_elsewhere_is_said_to() {
    let Some(program) = c_program("could_start_elsewhere", &["-O1", "-g", "-pthread"]) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let starts = |how: &str| {
        let file = folder.path().join(how);
        let mut detect = sunder();
        detect.args(["detect", "--quiet", "--no-measure", "-o"]);
        detect.arg(&file).arg("--").arg(&program);
        detect.args([how, "100000000"]).assert().success();
        let result = Findings::open(&file).expect("a result");
        let all = result.findings.iter().filter_map(|f| f.latent_on);
        all.filter(|on| matches!(on, LatentOn::StartOffset(_)))
            .count()
    };
    assert_eq!(starts("unaligned"), 1);
    assert_eq!(starts("aligned"), 0);
}
