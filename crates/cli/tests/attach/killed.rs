//! `repair` and `attach --repair` that end without warning: killed or stopped at any moment, also
//! while threads of the program run code for them, and without room for their output. The program
//! does what it would do alone.

use crate::support::limited::limited;
use crate::support::{Ended, c_program, plain_sunder, targets};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

/// How often each case is repeated here; the variable `SUNDER_KILLS` changes it.
const TIMES: u64 = 10;

fn times() -> u64 {
    let told = std::env::var("SUNDER_KILLS").ok();
    told.and_then(|t| t.parse().ok()).unwrap_or(TIMES)
}

/// A moment within a life of `life` milliseconds: a multiplicative sequence spreads the rounds over
/// it in no order.
fn moment(round: u64, life: u64) -> Duration {
    Duration::from_micros((round + 1) * 618_034 % (life * 1000))
}

fn program() -> PathBuf {
    c_program("attached", &[]).expect("it compiles")
}

/// Our ends of the program's pipes. It counts until it reads a byte from the first, and then writes
/// to the second whether all counts were right.
struct Pipes {
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Pipes {
    fn of(child: &mut Child) -> Self {
        let input = child.stdin.take().expect("piped");
        let output = child.stdout.take().expect("piped");
        let mut output = BufReader::new(output);
        let mut line = String::new();
        output.read_line(&mut line).expect("readable");
        assert_eq!(line, "ready\n");
        Self { input, output }
    }

    /// Ends the program; what it wrote.
    fn end(mut self) -> String {
        // If the program has died, the text is empty or says so.
        let _ = self.input.write_all(b"x");
        drop(self.input);
        let mut text = String::new();
        self.output.read_to_string(&mut text).expect("readable");
        text
    }
}

fn piped(command: &mut Command) -> &mut Command {
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
}

fn signal(process: u32, signal: i32) {
    // SAFETY: takes two integers.
    unsafe { libc::kill(process as i32, signal) };
}

fn attach(to: &str, duration: &str, seed: u64) -> Ended {
    let mut command = plain_sunder();
    command
        .args(["attach", "--repair", "--quiet", "--chaos"])
        .arg(seed.to_string())
        .args(["--duration", duration, "--pid", to])
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    Ended::new(&mut command)
}

/// Kills fall also while all threads are stopped and one of them runs code for the tool.
#[test]
fn a_program_outlives_who_is_attached_to_it() {
    let _alone = targets::alone();
    let program = program();
    for round in 0..times() {
        // Killed while the library comes and pages are moved, and around its removal.
        for duration in ["60s", "200ms"] {
            let mut target = Ended::new(piped(Command::new(&program).arg("calls")));
            let pipes = Pipes::of(target.child());
            let mut sunder = attach(&target.id(), duration, round);
            std::thread::sleep(moment(round, 900));
            signal(sunder.child().id(), libc::SIGKILL);
            let _ = sunder.child().wait();
            // Without the tool, a thread that touches moved bytes puts them back itself.
            std::thread::sleep(Duration::from_millis(20));
            let said = pipes.end();
            let status = target.child().wait().expect("waited for");
            assert_eq!(said, "wrong 0\n", "round {round} of {duration}: {status}");
            assert!(status.success(), "round {round} of {duration}: {status}");
        }
    }
}

#[test]
fn a_program_outlives_who_started_it() {
    let _alone = targets::alone();
    let program = program();
    for round in 0..times() {
        let mut command = plain_sunder();
        command.args(["repair", "--quiet", "--chaos"]);
        command.arg(round.to_string()).arg("--").arg(&program);
        let mut sunder = Ended::new(piped(command.arg("calls")));
        let pipes = Pipes::of(sunder.child());
        std::thread::sleep(moment(round, 900));
        signal(sunder.child().id(), libc::SIGKILL);
        let _ = sunder.child().wait();
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(pipes.end(), "wrong 0\n", "round {round}");
    }
}

/// Stopped as by Ctrl-Z, by a debugger, or on a machine that is too busy.
#[test]
fn who_is_stopped_for_a_while_goes_on() {
    let _alone = targets::alone();
    let program = program();
    for round in 0..times().div_ceil(2) {
        let mut target = Ended::new(piped(Command::new(&program).arg("calls")));
        let pipes = Pipes::of(target.child());
        let mut sunder = attach(&target.id(), "700ms", round);
        std::thread::sleep(moment(round, 900));
        signal(sunder.child().id(), libc::SIGSTOP);
        std::thread::sleep(Duration::from_millis(1500));
        signal(sunder.child().id(), libc::SIGCONT);
        assert_eq!(status(&mut sunder), Some(0), "round {round}");
        assert_eq!(pipes.end(), "wrong 0\n", "round {round}");
    }
}

/// The tool's exit status, if it ends.
fn status(sunder: &mut Ended) -> Option<i32> {
    const HANGS: Duration = Duration::from_secs(60);
    let begun = Instant::now();
    while begun.elapsed() < HANGS {
        if let Some(status) = sunder.child().try_wait().expect("a child") {
            return status.code();
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    None
}

/// The report can't be written, standard error is closed, or there is no standard input: the
/// program's output and status are its own all the same.
#[test]
fn what_sunder_can_not_write_is_not_the_programs_loss() {
    let _alone = targets::alone();
    let program = c_program("fibers", &[]).expect("it compiles");
    for how in ["exec \"$@\"", "exec \"$@\" 2>&- <&-"] {
        for report in [false, true] {
            let mut command = Command::new("sh");
            command.args(["-c", how, "sh"]);
            command.arg(plain_sunder().get_program());
            command.args(["repair", "--quiet"]);
            if report {
                command.args(["--report", "/dev/full"]);
            }
            command.arg("--").arg(&program).arg("2000");
            let seen = limited(&command).output().expect("timeout runs");
            let said = String::from_utf8_lossy(&seen.stderr);
            assert_eq!(String::from_utf8_lossy(&seen.stdout), "wrong 0\n", "{said}");
            let wanted = if report { 125 } else { 0 };
            assert_eq!(seen.status.code(), Some(wanted), "{how} {report}: {said}");
        }
    }
}
