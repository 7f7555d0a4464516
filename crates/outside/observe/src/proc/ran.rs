//! What has run: `schedstat` and `status` of the threads of a process, and `/proc/stat` of the machine.

use super::folder::Folder;
use super::listed_threads;
use super::status::Fields;
use std::fs;
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId};

/// What the threads of a process that live have taken of the CPUs so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Use {
    /// Their CPU time.
    pub run: Duration,
    /// How often the kernel switched from one of them to something else.
    pub switches: u64,
}

/// What a process has taken; `None` if it is gone, or the kernel does not tell.
pub fn use_of(process: ProcessId) -> Option<Use> {
    let mut all = Use::default();
    for thread in listed_threads(process).ok()? {
        let folder = Folder::Thread(process, thread);
        // One that has ended meanwhile counts no more.
        let (Ok(run), Ok(status)) = (folder.text("schedstat"), Fields::read(folder)) else {
            continue;
        };
        let run = run.split_whitespace().next()?.parse().ok()?;
        all.run += Duration::from_nanos(run);
        for field in ["voluntary_ctxt_switches", "nonvoluntary_ctxt_switches"] {
            let count = status.get(field).parse::<u64>().ok()?;
            all.switches = all.switches.saturating_add(count);
        }
    }
    Some(all)
}

/// For how long this thread could have run so far, but had no CPU; `None` if it is gone, or the kernel
/// does not tell.
pub fn waited_for_cpu(process: ProcessId, thread: ThreadId) -> Option<Duration> {
    scheduled(process, thread, 1)
}

/// The CPU time of this thread so far; `None` if it is gone, or the kernel does not tell.
pub fn ran_for(process: ProcessId, thread: ThreadId) -> Option<Duration> {
    scheduled(process, thread, 0)
}

/// The time that is the field `number` of a thread's `schedstat`.
fn scheduled(process: ProcessId, thread: ThreadId, number: usize) -> Option<Duration> {
    let text = Folder::Thread(process, thread).text("schedstat").ok()?;
    let time = text.split_whitespace().nth(number)?.parse().ok()?;
    Some(Duration::from_nanos(time))
}

/// CPU time of everything that ran on this machine so far, of all CPUs together, in clock ticks. What a
/// hypervisor gave to others does not count.
pub fn busy_ticks() -> Option<u64> {
    parse_busy(&fs::read_to_string("/proc/stat").ok()?)
}

/// The first line has the sums of all CPUs: user, nice, system, idle, iowait, irq, softirq (proc(5)).
fn parse_busy(text: &str) -> Option<u64> {
    let sums = text.lines().next()?.strip_prefix("cpu ")?;
    let sums: Vec<u64> = sums
        .split_whitespace()
        .map(|sum| sum.parse().ok())
        .collect::<Option<_>>()?;
    let busy = [0, 1, 2, 5, 6].map(|at| sums.get(at).copied());
    busy.into_iter()
        .try_fold(0_u64, |all, sum| Some(all.saturating_add(sum?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_and_stolen_time_is_not_busy() {
        let text = "cpu  100 20 30 9999 9999 4 5 9999 9999 9999\ncpu0 1 2 3\n";
        assert_eq!(parse_busy(text), Some(159));
        for damaged in ["", "cpu ", "cpu  1 2 3 4", "cpu0 1 2 3 4 5 6 7", "cpu  x"] {
            assert_eq!(parse_busy(damaged), None, "{damaged:?}");
        }
    }

    #[test]
    fn what_runs_and_waits_is_counted() {
        let own = ProcessId(std::process::id());
        let before = use_of(own).expect("we live");
        // A sleep is a switch, of this thread at least.
        std::thread::sleep(Duration::from_millis(2));
        let after = use_of(own).expect("we live");
        assert!(after.switches > before.switches, "{before:?} {after:?}");
        assert!(!after.run.is_zero());
        assert!(busy_ticks().is_some());
        assert_eq!(use_of(ProcessId(1 << 23)), None);
    }
}
