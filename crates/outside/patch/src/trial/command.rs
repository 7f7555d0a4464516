//! Runs a command of the user's in a folder: with a limit of time, and with all children gone at
//! its end.

use crate::error::PatchError;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How a command ended.
pub(super) struct Ended {
    pub(super) status: ExitStatus,
    pub(super) took: Duration,
    /// Whether it was killed because it took too long.
    pub(super) timed_out: bool,
    pub(super) output: Vec<u8>,
    /// The last lines of standard error.
    pub(super) complaint: String,
}

/// `sh -c COMMAND`.
pub(super) fn shell(command: &str) -> Vec<OsString> {
    vec!["sh".into(), "-c".into(), command.into()]
}

/// Runs it in `folder`. Its output goes through files in `scratch`, not through pipes that might
/// hold it up.
pub(super) fn run(
    command: &[OsString],
    folder: &Path,
    scratch: &Path,
    limit: Duration,
) -> Result<Ended, PatchError> {
    let (out, err) = (scratch.join("stdout"), scratch.join("stderr"));
    let create = |path: &Path| {
        File::create(path).map_err(|source| PatchError::File {
            path: path.to_owned(),
            source,
        })
    };
    let name = command.first().cloned().unwrap_or_default();
    let failed = |source| PatchError::Start {
        program: name.to_string_lossy().into_owned(),
        source,
    };
    let began = Instant::now();
    let mut child = Command::new(&name)
        .args(&command[1..])
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(create(&out)?)
        .stderr(create(&err)?)
        .process_group(0)
        .spawn()
        .map_err(failed)?;
    let group = Pid::from_child(&child);
    let (ended, wait) = mpsc::channel::<()>();
    let (timed_out, took) = std::thread::scope(|scope| {
        let watch = scope.spawn(move || {
            let late = wait.recv_timeout(limit) == Err(mpsc::RecvTimeoutError::Timeout);
            if late {
                let _ = kill_process_group(group, Signal::KILL);
            }
            late
        });
        // The child stays a zombie meanwhile, so that its number is nobody else's.
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(rustix::io::Errno::INTR) = waitid(WaitId::Pid(group), options) {}
        let took = began.elapsed();
        let _ = ended.send(());
        (watch.join().unwrap_or(false), took)
    });
    // What it left in the background.
    let _ = kill_process_group(group, Signal::KILL);
    let status = child.wait().map_err(failed)?;
    let complaint = std::fs::read(&err).unwrap_or_default();
    Ok(Ended {
        status,
        took,
        timed_out,
        output: std::fs::read(&out).unwrap_or_default(),
        complaint: last_lines(&String::from_utf8_lossy(&complaint)),
    })
}

fn last_lines(text: &str) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(12)..].join("\n")
}

impl Ended {
    /// How it failed, if it did.
    pub(super) fn failure(&self, what: &str, limit: Duration) -> Option<String> {
        if self.timed_out {
            return Some(format!(
                "{what} took longer than {} s and was killed",
                limit.as_secs()
            ));
        }
        if self.status.success() {
            return None;
        }
        let how = match (self.status.code(), self.status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or(0)),
        };
        let told = if self.complaint.is_empty() {
            String::new()
        } else {
            format!(":\n{}", self.complaint)
        };
        Some(format!("{what} fails with {how}{told}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run_shell(command: &str, limit: Duration) -> Ended {
        let scratch = tempfile::tempdir().expect("a folder");
        run(&shell(command), scratch.path(), scratch.path(), limit).expect("sh starts")
    }

    #[test]
    fn output_status_and_complaint_are_kept() {
        let ended = run_shell("echo out; echo err >&2; exit 3", Duration::from_secs(60));
        assert_eq!(ended.output, b"out\n");
        assert_eq!(ended.complaint, "err");
        let told = ended.failure("`x`", Duration::from_secs(60));
        assert_eq!(told.as_deref(), Some("`x` fails with exit status 3:\nerr"));
    }

    /// A child that would hold the files open for a minute is killed, too.
    #[test]
    fn a_command_that_takes_too_long_is_killed_with_its_children() {
        let ended = run_shell("sleep 60 & sleep 60", Duration::from_millis(100));
        assert!(ended.timed_out);
        assert!(ended.took < Duration::from_secs(30));
    }
}
