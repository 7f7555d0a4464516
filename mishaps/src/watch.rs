//! Waits for a run's processes, also for those that lost their parent: this process adopts them.
//! Must not know what happens to the tool.

use crate::group;
use crate::places::done;
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

/// A run that takes longer hangs.
pub const HANGS: Duration = Duration::from_secs(60);

/// Names of processes that are not the program: the tool before it executes the program, and what
/// traces it.
const NOT_THE_PROGRAM: [&str; 2] = ["sunder", "strace"];

/// A process that has ended.
pub struct Reaped {
    id: i32,
    name: String,
    /// In ticks of the clock since the machine's start.
    started: u64,
    /// How it ended.
    pub status: ExitStatus,
}

/// From now on processes that lose their parent are children of this one.
pub fn adopt() -> io::Result<()> {
    // SAFETY: takes integers.
    done(unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) })
}

/// Waits until the group has no process any more, and calls `step` meanwhile, which learns whether
/// the group's first process lives. Returns its status, the other processes that became children
/// of this one, and those that did not end; they are killed.
pub fn watch(group: i32, step: &mut dyn FnMut(bool)) -> (Option<ExitStatus>, Vec<Reaped>, String) {
    let begun = Instant::now();
    let (mut first, mut others) = (None, Vec::new());
    let mut left = String::new();
    loop {
        while let Some(reaped) = reap(group) {
            if reaped.id == group {
                first = Some(reaped.status);
            } else {
                others.push(reaped);
            }
        }
        step(first.is_none());
        // SAFETY: takes integers; signal 0 only checks for existence.
        let over = unsafe { libc::kill(-group, 0) } != 0;
        if over {
            return (first, others, left);
        }
        if begun.elapsed() > HANGS && left.is_empty() {
            left = group::processes(group);
            group::end(group);
            while let Some(reaped) = reap(group) {
                others.push(reaped);
            }
            // Those whose parents live and do not wait for them.
            std::thread::sleep(Duration::from_millis(100));
            while reap(group).is_some() {}
            return (first, others, left);
        }
        std::thread::sleep(Duration::from_micros(300));
    }
}

/// The children that the tool was seen to have, each with the first and the last time.
#[derive(Default)]
pub struct Children(BTreeMap<i32, (Instant, Instant)>);

impl Children {
    /// Looks which there are.
    pub fn look(&mut self, tool: i32) {
        let now = Instant::now();
        let threads = fs::read_dir(format!("/proc/{tool}/task"));
        for thread in threads.into_iter().flatten().flatten() {
            let children = fs::read_to_string(thread.path().join("children"));
            for child in children.unwrap_or_default().split_whitespace() {
                if let Ok(child) = child.parse() {
                    self.0.entry(child).or_insert((now, now)).1 = now;
                }
            }
        }
    }

    /// The program, among processes that became ours; `None` if the tool has waited for it, or it
    /// was not started. What the program itself has started became ours too, if it has not waited
    /// for it.
    pub fn program<'a>(&self, others: &'a [Reaped]) -> Option<&'a Reaped> {
        /// A child that is not the program lives shorter.
        const LONG: Duration = Duration::from_millis(60);
        let started = |other: &&Reaped| !NOT_THE_PROGRAM.contains(&other.name.as_str());
        let ours = || others.iter().filter(started);
        let by_tool = ours().find(|other| self.0.contains_key(&other.id));
        let is_ours = |id: &i32| others.iter().any(|other| other.id == *id);
        let waited_for = |(id, (first, last)): (&i32, &(Instant, Instant))| {
            !is_ours(id) && *last - *first > LONG
        };
        if by_tool.is_some() || self.0.iter().any(waited_for) {
            return by_tool;
        }
        ours().min_by_key(|other| (other.started, other.id))
    }
}

/// A child of this group that has ended.
fn reap(group: i32) -> Option<Reaped> {
    // SAFETY: zeroes are a valid value.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let flags = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT | libc::__WALL;
    // SAFETY: `info` is a valid place for the result.
    let found = unsafe { libc::waitid(libc::P_PGID, group as u32, &raw mut info, flags) };
    // SAFETY: `waitid` has filled it, or it has zeroes.
    let id = unsafe { info.si_pid() };
    if found != 0 || id == 0 {
        return None;
    }
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).unwrap_or_default();
    let (head, rest) = stat.rsplit_once(')').unwrap_or_default();
    let name = head.split_once('(').map_or("", |(_, name)| name).to_owned();
    let started = rest.split_whitespace().nth(19);
    let mut status = 0;
    // SAFETY: `status` is a valid place for the result.
    if unsafe { libc::waitpid(id, &raw mut status, libc::__WALL) } != id {
        return None;
    }
    Some(Reaped {
        id,
        name,
        started: started.and_then(|s| s.parse().ok()).unwrap_or(0),
        status: ExitStatus::from_raw(status),
    })
}
