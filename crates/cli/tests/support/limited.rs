//! Commands that must end: after a time limit they are killed.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

/// The command without input and with a time limit that only a hang reaches. At the limit all its
/// processes are killed: one that is left would keep the output open, for which a test waits.
pub fn limited(command: &Command) -> Command {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let mut limited = Command::new("timeout");
    limited.args(["-s", "KILL", "120"]).args(words);
    limited.stdin(Stdio::null());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => limited.env(name, value),
            None => limited.env_remove(name),
        };
    }
    limited
}

/// Runs the command with the limit.
pub fn output(command: &Command) -> Output {
    limited(command).output().expect("timeout runs")
}

/// The exit status; after a death by signal, the number that a shell shows.
pub fn status(output: &Output) -> Option<i32> {
    let signal = output.status.signal().map(|signal| 128 + signal);
    output.status.code().or(signal)
}

/// Whether threads can be stopped here, as `sunder protect` needs it; prints a notice if not.
pub fn can_stop_threads(protected: &Output) -> bool {
    let said = String::from_utf8_lossy(&protected.stderr);
    let refused = said.contains("can't be stopped");
    if refused {
        println!("SKIP: {said}");
    }
    !refused
}
