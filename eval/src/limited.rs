//! Runs a program that may hang or leave processes behind, and reports what it did. For benchmarks
//! that prove something by many runs; the duration of a run does not count here.

use anyhow::{Context, Result};
use std::fs::{self, File};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::{Duration, Instant};
use sunder_mishaps::{end, processes};

/// The result of one run.
#[derive(Debug)]
pub struct Ran {
    /// The exit status; `None` if the program was killed at the limit.
    pub status: Option<ExitStatus>,
    /// Its standard output.
    pub stdout: Vec<u8>,
    /// Its standard error.
    pub stderr: String,
    /// Its wall time in seconds.
    pub wall: f64,
    /// The processes of its group and the system call in which each of their threads waited: at the
    /// limit, or, if the program ended, those that outlived it. They have been killed since.
    pub left: String,
}

impl Ran {
    /// What is wrong with this run in comparison with a right one; `None` if nothing is. `compares`
    /// says whether the output counts.
    pub fn wrong(&self, right: &Self, compares: bool) -> Option<&'static str> {
        if self.status.is_none() {
            return Some("hung");
        }
        if !self.left.is_empty() {
            return Some("left processes behind");
        }
        // Sunder exits with a shell's number for a death by signal.
        let shown = |s: ExitStatus| s.code().or(s.signal().map(|s| 128 + s));
        if self.status.and_then(shown) != right.status.and_then(shown) {
            return Some("other status");
        }
        (compares && self.stdout != right.stdout).then_some("other output")
    }
}

/// A temporary folder, which is removed with all its contents when this value is dropped.
pub struct Folder(std::path::PathBuf);

impl Folder {
    /// Makes the folder.
    ///
    /// # Errors
    /// If that fails.
    pub fn new() -> Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Relaxed);
        let name = format!("sunder-eval-{}-{number}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Self(path))
    }

    /// The path of the folder.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Runs `command` without input in a process group of its own, which is killed at `limit`.
///
/// # Errors
/// If it can't be started, or its output can't be stored.
pub fn run(command: &mut Command, limit: Duration) -> Result<Ran> {
    // Files, not pipes: a process that outlives the program would keep a pipe open.
    let folder = Folder::new()?;
    let kept = |name: &str| folder.path().join(name);
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(File::create(kept("stdout"))?)
        .stderr(File::create(kept("stderr"))?)
        .process_group(0)
        .spawn()
        .with_context(|| format!("cannot start {command:?}"))?;
    let group = i32::try_from(child.id())?;
    let status = wait(&mut child, limit)?;
    let wall = start.elapsed().as_secs_f64();
    let left = if status.is_none() || outlived(group) {
        let left = processes(group);
        end(group);
        left
    } else {
        String::new()
    };
    child.wait()?;
    Ok(Ran {
        status,
        stdout: fs::read(kept("stdout"))?,
        stderr: String::from_utf8_lossy(&fs::read(kept("stderr"))?).into_owned(),
        wall,
        left,
    })
}

/// The exit status, if the child ends in time.
fn wait(child: &mut Child, limit: Duration) -> Result<Option<ExitStatus>> {
    let start = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if start.elapsed() >= limit {
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Whether the group still has processes a second after its first one has ended: those that die
/// with it take a moment.
fn outlived(group: i32) -> bool {
    for _ in 0..100 {
        // SAFETY: takes integers; signal 0 only checks for existence.
        if unsafe { libc::kill(-group, 0) } != 0 || processes(group).is_empty() {
            return false;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str, limit: Duration) -> Ran {
        run(Command::new("sh").args(["-c", script]), limit).expect("sh runs")
    }

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn a_completed_run_has_output_and_status() {
        let right = shell("echo out; echo error >&2; exit 3", LONG);
        assert_eq!(right.stdout, b"out\n");
        assert_eq!(right.stderr, "error\n");
        assert_eq!(right.status.and_then(|s| s.code()), Some(3));
        assert_eq!(right.left, "");
        assert_eq!(right.wrong(&right, true), None);
        let other = shell("echo other; exit 3", LONG);
        assert_eq!(other.wrong(&right, true), Some("other output"));
        assert_eq!(other.wrong(&right, false), None);
        let status = shell("echo out; exit 4", LONG);
        assert_eq!(status.wrong(&right, true), Some("other status"));
    }

    #[test]
    fn a_death_by_signal_is_that_of_a_shell() {
        let died = shell("kill -TERM $$", LONG);
        let exited = shell("exit 143", LONG);
        assert_eq!(exited.wrong(&died, true), None);
    }

    #[test]
    fn a_run_that_hangs_is_killed_and_reported() {
        let hung = shell("sleep 1000", Duration::from_millis(300));
        assert!(hung.status.is_none());
        assert!(hung.left.contains(" state "), "{}", hung.left);
        let right = shell("true", LONG);
        assert_eq!(hung.wrong(&right, true), Some("hung"));
    }

    #[test]
    fn processes_that_outlive_the_program_are_killed_and_reported() {
        let ran = shell("sleep 1000 & echo $!", LONG);
        assert!(ran.left.contains(" state "), "{}", ran.left);
        assert_eq!(ran.wrong(&ran, true), Some("left processes behind"));
        let sleeper = String::from_utf8_lossy(&ran.stdout).trim().to_owned();
        let lives = || {
            let stat = fs::read_to_string(format!("/proc/{sleeper}/stat")).unwrap_or_default();
            // Its new parent may not have reaped it yet.
            !stat.is_empty() && !stat.contains(") Z ") && !stat.contains(") X ")
        };
        while lives() {
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
