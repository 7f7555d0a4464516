//! Signals that rain on a program while its threads are isolated and come home all the time
//! (`tests/programs/rain.c`): none is lost, handlers compute what they do, and whoever is
//! interrupted on the way into isolation goes on as if nothing had been. Judged by the
//! program's counts and its status.
//!
//! A stop of the terminal's (`SIGTSTP`, which a worker takes for its thread's way home) comes
//! about every 0.3 ms to all processes of the group, and a worker needs longer to be made: many
//! find one waiting when they let signals in. When a worker's frame from before it computed
//! was one that its thread went on from, 19 of 20 runs ended by SIGSEGV, after 5 to 81
//! episodes (32 on average): of 300 episodes, 1 in 10,000 series would miss it.

mod support;

use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use support::{Ended, c_program, plain_sunder};

/// As long as a run may take that does not hang.
const LONGEST: Duration = Duration::from_secs(120);
/// So many threads one after the other, in three lines.
const ROUNDS: &str = "12";
/// Episodes of all runs that say something.
const ENOUGH: u64 = 300;

/// Runs it in a process group of its own, in which stops of the terminal's are ignored by who
/// does not handle them; what it wrote, and its status.
fn in_the_rain(command: &mut Command) -> (String, Option<i32>) {
    let deaf = || {
        for signal in [libc::SIGTSTP, libc::SIGTTIN, libc::SIGTTOU] {
            // SAFETY: no handler is set.
            unsafe { libc::signal(signal, libc::SIG_IGN) };
        }
        Ok(())
    };
    // SAFETY: the closure calls only what is async-signal-safe.
    unsafe { command.pre_exec(deaf) };
    command.process_group(0).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut process = Ended::new(command);
    let group: i32 = process.id().parse().expect("a number");
    let begin = Instant::now();
    let status = loop {
        if let Some(status) = process.child().try_wait().expect("ours") {
            break status;
        }
        if begin.elapsed() > LONGEST {
            // SAFETY: takes two integers; the group is that of what was just started.
            unsafe { libc::kill(-group, libc::SIGKILL) };
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut text = String::new();
    let child = process.child();
    for stream in [
        child
            .stdout
            .take()
            .map(|s| Box::new(s) as Box<dyn std::io::Read>),
        child
            .stderr
            .take()
            .map(|s| Box::new(s) as Box<dyn std::io::Read>),
    ] {
        let _ = stream.expect("piped").read_to_string(&mut text);
    }
    let shown = status.code().or(status.signal().map(|signal| 128 + signal));
    (text, shown)
}

#[test]
fn signals_on_the_way_into_isolation_and_out_of_it_lose_nothing() {
    let _alone = support::targets::alone();
    let program = c_program("rain", &["-w"]).expect("it compiles");
    let native = in_the_rain(Command::new(&program).arg(ROUNDS));
    assert_eq!(native, ("right\n".into(), Some(3)));
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rain-report.json");
    let mut episodes = 0;
    for every in ["500", "1500", "700", "300", "1000", "500", "700", "300"] {
        let mut command = plain_sunder();
        command.args(["protect", "--every", every, "--isolate-global", "shared"]);
        command.args(["--quiet", "--report"]).arg(&report).arg("--");
        let protected = in_the_rain(command.arg(&program).arg(ROUNDS));
        assert_eq!(protected, native, "every {every} us");
        let said = std::fs::read_to_string(&report).expect("it was written");
        let said: serde_json::Value = serde_json::from_str(&said).expect("JSON");
        let refused = said["refused"].as_str().unwrap_or_default();
        if refused.contains("can't be stopped") {
            println!("SKIP: {refused}");
            return;
        }
        episodes += said["episodes"].as_u64().expect("a number");
        if episodes >= ENOUGH {
            return;
        }
    }
    println!("SKIP: only {episodes} episodes");
}
