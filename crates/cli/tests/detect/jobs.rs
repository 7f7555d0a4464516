//! A terminal's job control: Ctrl-Z stops the program and Sunder as a shell's job, isolated
//! threads included, `fg` continues both, and Ctrl-C ends both with the program's status. The
//! terminal shows what it would show without Sunder.

use crate::support::built;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Compiles `tests/programs/NAME.c`.
fn compiled(name: &str) -> PathBuf {
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs");
    let mut compiler = Command::new("gcc");
    compiler.args(["-O1", "-w", "-pthread"]);
    compiler.arg(source.join(name).with_extension("c"));
    built::once(&program, compiler.arg("-lutil")).expect("it compiles");
    program
}

/// What the terminal shows with the job `sunder`, followed by the program's own arguments.
fn seen(sunder: &[&str], own: &[&str]) -> String {
    crate::support::usual_signals();
    let mut command = Command::new(compiled("terminal"));
    if own[0] == "ignores" {
        command.arg("unstoppable");
    }
    if !sunder.is_empty() {
        command.arg(env!("CARGO_BIN_EXE_sunder")).args(sunder);
        command.arg("--");
    }
    let output = command
        .arg(compiled("job"))
        .args(own)
        .stdin(Stdio::null())
        .output()
        .expect("it was just compiled");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Compares the program alone and under these commands. Under one that isolates threads, the
/// program waits until a thread is isolated, where that can be.
fn is_as_natively(how: &str) {
    let _alone = crate::support::targets::alone();
    let native = seen(&[], &[how]);
    let stops = native.contains("all are stopped: 1\n");
    assert_ne!(stops, how == "ignores", "{native}");
    assert!(native.contains("right\n") || native.contains("ended with 130\n"));
    let protect = ["protect", "--quiet", "--isolate-global", "shared"];
    assert_eq!(seen(&protect, &[how, "sunder-memory"]), native, "protect");
    assert_eq!(seen(&["protect", "--quiet"], &[how]), native, "protect");
    assert_eq!(seen(&["repair", "--quiet"], &[how]), native, "repair");
    assert_eq!(seen(&["detect", "--quiet"], &[how]), native, "detect");
}

#[test]
fn a_job_is_stopped_goes_on_and_is_interrupted() {
    is_as_natively("plain");
}

#[test]
fn a_job_that_handles_its_stops_and_its_interrupt_does_so() {
    is_as_natively("handles");
}

/// The terminal stays the program's.
#[test]
fn a_job_that_does_not_stop_goes_on() {
    is_as_natively("ignores");
}

/// Only one thread of Sunder takes stops. Any other would stop Sunder as a whole while the program
/// goes on: the terminal would be the shell's, and the program would stop at its next read.
#[test]
fn only_one_thread_takes_stops() {
    for words in [
        &["protect"][..],
        &["protect", "--eager"],
        &["repair"],
        &["cure"],
        &["detect"],
        &["detect", "--observer", "isolate"],
    ] {
        let mut sunder = crate::support::plain_sunder()
            .args(words)
            .args(["--quiet", "--", "sleep", "0.2"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("it was built");
        let process = sunder.id();
        let mut held = false;
        while sunder.try_wait().expect("a child of ours").is_none() {
            let threads = threads_and_stops(process);
            // Before the program is started and after it has ended there is no such thread.
            if threads.iter().all(|(_, name, _)| name != "stops") {
                continue;
            }
            held = true;
            for (thread, name, takes) in threads {
                let may = thread == process || name == "stops";
                assert!(may || !takes, "{words:?}: {name}");
            }
        }
        assert!(held, "{words:?}");
    }
}

/// A program that does not stop, and ends at once.
#[test]
fn a_stop_at_the_end_of_a_program_stops_nobody() {
    const TIMES: usize = 50;
    for words in [
        &["run"][..],
        &["protect", "--quiet"],
        &["repair", "--quiet"],
        &["cure", "--quiet"],
        &["detect", "--quiet"],
    ] {
        for time in 0..TIMES {
            // A process group whose leader's parent is in another group of the session: the kernel
            // does stop it.
            let mut sunder = crate::support::plain_sunder()
                .args(words)
                .args(["--", "sh", "-c", "trap '' TSTP; kill -TSTP 0; exit 3"])
                .process_group(0)
                .stdin(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("it was built");
            // SAFETY: `siginfo_t` is plain data, for which zeroes are valid; the child is ours and
            // has not been reaped, and WNOWAIT does not reap it.
            let stopped = unsafe {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                let options = libc::WSTOPPED | libc::WEXITED | libc::WNOWAIT;
                let done = libc::waitid(libc::P_PID, sunder.id(), &raw mut info, options);
                done == 0 && info.si_code == libc::CLD_STOPPED
            };
            if stopped {
                // SAFETY: integers; the group is our child's.
                unsafe { libc::kill(-sunder.id().cast_signed(), libc::SIGKILL) };
            }
            let ended = sunder.wait().expect("a child of ours");
            assert_eq!(ended.code(), Some(3), "{words:?}, time {time}");
        }
    }
}

/// The threads of a process with their names, and whether each takes a terminal's stop.
fn threads_and_stops(process: u32) -> Vec<(u32, String, bool)> {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{process}/task")) else {
        return Vec::new();
    };
    let told = threads.flatten().filter_map(|thread| {
        let number = thread.file_name().to_str()?.parse().ok()?;
        let status = std::fs::read_to_string(thread.path().join("status")).ok()?;
        let word = |key: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| Some(line.strip_prefix(key)?.trim()))
        };
        // For a thread that has just ended, the kernel writes zeroes instead of its signals.
        if word("Threads:")? == "0" {
            return None;
        }
        let blocked = u64::from_str_radix(word("SigBlk:")?, 16).ok()?;
        let takes = blocked >> (libc::SIGTSTP - 1) & 1 == 0;
        Some((number, word("Name:")?.to_owned(), takes))
    });
    told.collect()
}
