//! Ctrl-C, `kill`, closed pipes and full disks: the program gets the signals that are meant for
//! it, its status stays its own, and what was observed before is still reported.

use crate::support::plain_sunder;
use crate::support::targets::{as_expected, build, falsely_shared, global, open, side_by_side};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use sunder_findings::{Exit, Findings};
use sunder_workloads::Variant;

/// Iterations for minutes of work: the tests end these targets.
const LONG: &str = "80000000000";

/// CPU seconds of the target after which there are samples enough for a verdict, even at 100 a
/// second, the least that any kernel's clock gives.
const SEEN_AFTER: f64 = 1.0;

/// A running `sunder detect` of the workload `thread_stats`, in a process group
/// of its own, whose target has run for [`SEEN_AFTER`].
struct Running {
    sunder: Child,
    target: i32,
}

impl Running {
    fn start(file: &Path) -> Self {
        let mut command = plain_sunder();
        command
            .args(["detect", "--quiet", "-o"])
            .arg(file)
            .arg("--");
        command
            .arg(build("thread_stats", Variant::Shared))
            .args(["2", LONG]);
        let sunder = command
            .process_group(0)
            .stdout(Stdio::null())
            .spawn()
            .expect("sunder starts");
        let mut running = Self { sunder, target: 0 };
        for _ in 0..6000 {
            std::thread::sleep(std::time::Duration::from_millis(10));
            running.target = child_of(running.sunder.id()).unwrap_or(0);
            if cpu_seconds(running.target).is_some_and(|s| s >= SEEN_AFTER) {
                return running;
            }
        }
        panic!("the target does not run");
    }

    /// The status that Sunder exits with and its report.
    fn end(mut self, file: &Path) -> (Option<i32>, Result<Findings, String>) {
        let status = self.sunder.wait().expect("sunder ends");
        assert!(cpu_seconds(self.target).is_none(), "the target runs on");
        (status.code(), open(file))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.target > 0 && cpu_seconds(self.target).is_some() {
            kill(self.target, libc::SIGKILL);
        }
        let _ = self.sunder.kill();
        let _ = self.sunder.wait();
    }
}

fn kill(process: i32, signal: i32) {
    // SAFETY: takes two integers.
    unsafe { libc::kill(process, signal) };
}

/// The first child of a process, as the kernel lists it, other than the one that writes the report.
fn child_of(process: u32) -> Option<i32> {
    let list = std::fs::read_to_string(format!("/proc/{process}/task/{process}/children")).ok()?;
    let name = |child: &str| std::fs::read_to_string(format!("/proc/{child}/comm"));
    let is_program = |child: &&str| name(child).is_ok_and(|name| name != "sunder-writer\n");
    list.split_whitespace().find(is_program)?.parse().ok()
}

/// User time of a process; `None` before it starts and after it has ended.
fn cpu_seconds(process: i32) -> Option<f64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let mut fields = text.rsplit(") ").next()?.split(' ');
    if fields.next()? == "Z" {
        return None;
    }
    // Field 14 of proc(5), in hundredths of a second.
    fields
        .nth(10)?
        .parse::<f64>()
        .ok()
        .map(|ticks| ticks / 100.0)
}

/// Ends a run by `end`, which gets the process numbers of Sunder and of the target. Sunder must
/// exit with `status` and report what it observed.
fn ended(what: &str, signal: i32, end: impl Fn(i32, i32)) {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("result.json");
    side_by_side(what, || {
        let running = Running::start(&file);
        end(running.sunder.id() as i32, running.target);
        let (status, result) = running.end(&file);
        assert_eq!(status, Some(128 + signal), "{what}");
        let result = result?;
        assert_eq!(result.program.exit, Some(Exit::Signal(signal)), "{what}");
        assert!(result.run.samples > 0, "{what}: {:#?}", result.limits);
        std::fs::remove_file(&file).expect("written");
        as_expected(falsely_shared(&result, global("stats"))?, "thread_stats")
    });
}

/// Supervisors send their signal to the process that they have started.
#[test]
fn an_interrupt_for_sunder_alone_reaches_the_program() {
    ended("SIGINT to Sunder", libc::SIGINT, |sunder, _| {
        kill(sunder, libc::SIGINT)
    });
}

#[test]
fn ctrl_c_ends_the_program_and_not_the_report() {
    ended("SIGINT to the group", libc::SIGINT, |sunder, _| {
        kill(-sunder, libc::SIGINT)
    });
}

#[test]
fn a_signal_sent_to_sunder_alone_reaches_the_program() {
    for signal in [libc::SIGTERM, libc::SIGHUP] {
        ended("to sunder", signal, |sunder, _| kill(sunder, signal));
    }
}

#[test]
fn what_was_seen_of_a_killed_program_is_reported() {
    ended("SIGKILL", libc::SIGKILL, |_, target| {
        kill(target, libc::SIGKILL)
    });
}

/// Runs `script` in a shell in which `$SUNDER` is the program under test.
fn shell(script: &str) -> std::process::Output {
    crate::support::usual_signals();
    Command::new("sh")
        .args(["-c", script])
        .env("SUNDER", env!("CARGO_BIN_EXE_sunder"))
        .env("NO_COLOR", "1")
        .output()
        .expect("there is a shell")
}

#[test]
fn a_program_that_survives_ctrl_c_is_not_disturbed() {
    // The trap runs in the target; Sunder must not end before it.
    let seen = shell(
        "$SUNDER detect -q -- sh -c 'trap \"echo caught\" INT; kill -INT $PPID; kill -INT $$; exit 3'",
    );
    assert_eq!(seen.status.code(), Some(3), "{seen:?}");
    assert_eq!(seen.stdout, b"caught\n");
}

#[test]
fn the_program_inherits_the_dispositions_of_sunders_caller() {
    // Sunder hands on both dispositions: SIGPIPE's, which Rust programs ignore, and nohup's SIGHUP.
    for (before, signal, code) in [
        ("", "PIPE", 128 + libc::SIGPIPE),
        ("trap '' PIPE;", "PIPE", 0),
        ("", "HUP", 128 + libc::SIGHUP),
        ("trap '' HUP;", "HUP", 0),
        ("trap '' INT;", "INT", 0),
        ("", "USR1", 128 + libc::SIGUSR1),
    ] {
        for observer in ["auto", "timer"] {
            let seen = shell(&format!(
                "{before} exec $SUNDER detect --observer {observer} -q -- sh -c 'kill -{signal} $$'"
            ));
            assert_eq!(
                seen.status.code(),
                Some(code),
                "{before} {signal} {observer}: {seen:?}"
            );
        }
    }
}

#[test]
fn a_stream_that_is_closed_is_closed_for_the_program_too() {
    // Writing to the closed stream fails, as without Sunder; the shell's status shows it.
    for (stream, script) in [
        (">&-", "echo text"),
        ("2>&-", "echo text >&2"),
        ("<&-", "exec 4<&0"),
    ] {
        let native = shell(&format!("sh -c '{script}' {stream}"));
        assert_ne!(native.status.code(), Some(0), "{stream}");
        for observer in ["auto", "timer"] {
            let seen = shell(&format!(
                "$SUNDER detect -q --observer {observer} -- sh -c '{script}' {stream}"
            ));
            assert_eq!(
                seen.status.code(),
                native.status.code(),
                "{stream} {observer}"
            );
        }
    }
}

#[test]
fn closed_streams_change_no_status() {
    for (streams, code) in [
        ("2>&-", 7),
        (">&-", 7),
        ("<&-", 7),
        ("<&- >&- 2>&-", 7),
        ("2>/dev/full", 7),
        (">/dev/full", 7),
        ("2>&1 >/dev/null | true; exit 7", 7),
    ] {
        let seen = shell(&format!("$SUNDER detect -- sh -c 'exit 7' {streams}"));
        assert_eq!(seen.status.code(), Some(code), "{streams}: {seen:?}");
        let told = String::from_utf8_lossy(&seen.stderr);
        assert!(!told.contains("panicked"), "{streams}: {told}");
    }
}

#[test]
fn a_reader_that_is_gone_is_no_fault() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = plain_sunder()
        .args(["detect", "--", "sh", "-c", "exit 5"])
        .stderr(writer.try_clone().expect("a descriptor"))
        .status()
        .expect("sunder starts");
    assert_eq!(status.code(), Some(5));
    let status = plain_sunder()
        .args(["detect", "--", "true"])
        .stderr(writer.try_clone().expect("a descriptor"))
        .status()
        .expect("sunder starts");
    assert_eq!(status.code(), Some(0));
    let status = plain_sunder()
        .arg("doctor")
        .stdout(writer)
        .status()
        .expect("sunder starts");
    assert_eq!((status.code(), status.signal()), (Some(0), None));
}

#[test]
fn a_report_that_cannot_be_written_is_told_and_fails_only_a_success() {
    for format in ["text", "json", "html", "sarif"] {
        for (code, expected) in [(0, 125), (9, 9)] {
            let seen = shell(&format!(
                "$SUNDER detect --format {format} -o /dev/full -q -- sh -c 'exit {code}'"
            ));
            assert_eq!(seen.status.code(), Some(expected), "{format}: {seen:?}");
            let told = String::from_utf8_lossy(&seen.stderr);
            assert!(told.contains("/dev/full"), "{format}: {told}");
            assert_eq!(told.lines().count(), 1, "{format}: {told}");
        }
    }
    // Sunder checks that the report's folder exists before it starts the program.
    let seen = shell("$SUNDER detect -q -o /no/such/folder/x.json -- echo ran");
    assert_eq!(seen.status.code(), Some(125), "{seen:?}");
    assert_eq!(seen.stdout, b"");
}
