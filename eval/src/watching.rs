//! A `sunder watch` beside a benchmark, and what its processes take: the one that tells, the one that
//! observes, and those that name what was found. Called by `watch_churn` and `server_cost`.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use sunder_findings::{Record, WatchStatus};

/// How long the first record of a watch is waited for.
const PATIENCE: Duration = Duration::from_secs(60);

/// A watch that goes on. It is ended when this is dropped.
pub struct Watching {
    child: Child,
    observer: u32,
    file: PathBuf,
}

/// What a process has in memory, and has taken of the CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Taken {
    /// Resident memory in KiB.
    pub resident_kib: u64,
    /// The most that it ever was.
    pub peak_kib: u64,
    /// User and system seconds, with those of children that were waited for.
    pub cpu: f64,
}

impl Watching {
    /// Begins to watch this machine, and waits until the first status is told.
    ///
    /// # Errors
    /// If it can't be started, or tells nothing.
    pub fn begin(sunder: &Path, arguments: &[&str]) -> Result<Self> {
        let name = format!("sunder-eval-watch-{}.jsonl", std::process::id());
        let file = std::env::temp_dir().join(name);
        // One that an interrupted benchmark has left.
        let _ = fs::remove_file(&file);
        let child = Command::new(sunder)
            .args(["watch", "--quiet", "--json"])
            .arg(&file)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .context("cannot start a watch")?;
        let mut watching = Self {
            child,
            observer: 0,
            file,
        };
        let since = Instant::now();
        while watching.status()?.is_none() {
            ensure!(since.elapsed() < PATIENCE, "the watch tells nothing");
            ensure!(watching.child.try_wait()?.is_none(), "the watch has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
        let own = watching.child.id();
        let children = fs::read_to_string(format!("/proc/{own}/task/{own}/children"))?;
        let first = children.split_whitespace().next();
        watching.observer = first.context("no process observes")?.parse()?;
        Ok(watching)
    }

    /// What the process takes that tells.
    ///
    /// # Errors
    /// If it is gone.
    pub fn teller(&self) -> Result<Taken> {
        // Its only child is the process that observes, which is not waited for before the end.
        Taken::of(self.child.id())
    }

    /// What the process takes that observes, and those that have named what it found.
    ///
    /// # Errors
    /// If it is gone.
    pub fn observer(&self) -> Result<Taken> {
        Taken::of(self.observer)
    }

    /// All records so far.
    ///
    /// # Errors
    /// If one can't be read.
    pub fn records(&self) -> Result<Vec<Record>> {
        let text = fs::read_to_string(&self.file).unwrap_or_default();
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        let read = |line| serde_json::from_str(line).context("a record can't be read");
        whole.lines().map(read).collect()
    }

    /// The last status that was told.
    ///
    /// # Errors
    /// If a record can't be read.
    pub fn status(&self) -> Result<Option<WatchStatus>> {
        Ok(last_status(self.records()?))
    }

    /// Ends it; its last status.
    ///
    /// # Errors
    /// If it ends badly.
    pub fn end(mut self) -> Result<WatchStatus> {
        let pid = i32::try_from(self.child.id())?;
        // SAFETY: takes two integers; the child has not been waited for.
        unsafe { libc::kill(pid, libc::SIGTERM) };
        let ended = self.child.wait()?;
        ensure!(ended.success(), "the watch ended with {ended}");
        last_status(self.records()?).context("the watch told nothing")
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        // It has ended already where all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_file(&self.file);
    }
}

fn last_status(records: Vec<Record>) -> Option<WatchStatus> {
    let mut statuses = records.into_iter().filter_map(|record| match record {
        Record::Status(status) => Some(*status),
        Record::Finding(_) => None,
    });
    statuses.next_back()
}

impl Taken {
    /// What a process takes.
    ///
    /// # Errors
    /// If it is gone.
    pub fn of(pid: u32) -> Result<Self> {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            let number = line.and_then(|line| line.split_whitespace().next());
            number.and_then(|number| number.parse().ok()).unwrap_or(0)
        };
        let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
        // After the name, which may hold anything: utime, stime, cutime and cstime are fields 14 to 17.
        let after = stat.rsplit_once(')').context("no name")?.1;
        let ticks: Vec<f64> = after
            .split_whitespace()
            .skip(11)
            .take(4)
            .map(str::parse)
            .collect::<std::result::Result<_, _>>()?;
        // SAFETY: takes an integer.
        let per_second = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        Ok(Self {
            resident_kib: field("VmRSS:"),
            peak_kib: field("VmHWM:"),
            cpu: ticks.iter().sum::<f64>() / per_second,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_process_takes_is_read() {
        let pages = vec![1_u8; 32 << 20];
        let own = Taken::of(std::process::id()).expect("we live");
        assert!(std::hint::black_box(&pages).iter().all(|&byte| byte == 1));
        assert!(own.resident_kib >= 32 << 10 && own.peak_kib >= own.resident_kib);
        assert!(own.cpu.is_finite() && own.cpu >= 0.0);
        // Above the largest possible number of a process, 2^22.
        assert!(Taken::of(1 << 23).is_err());
    }
}
