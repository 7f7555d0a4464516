//! How much CPU time each thread of the process has used, and in how much of it the thread contended
//! for a line. Kept by `experiment`; only adds up what the judge says.

use std::collections::{BTreeMap, BTreeSet};
use sunder_access::{ThreadId, Time};
use sunder_sharing::{ThreadTime, Verdict};

/// The times of one thread, in ns of its CPU time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Used {
    /// All.
    pub cpu_ns: u64,
    /// The part in which it contended.
    pub contended_ns: f64,
    contends: bool,
    ever: bool,
}

/// The times of all threads.
#[derive(Clone, Debug, Default)]
pub struct Clocks(BTreeMap<ThreadId, Used>);

impl Clocks {
    /// Takes in the threads' times until `now`, when `contended` are the contended lines.
    pub fn look(&mut self, times: &[ThreadTime], contended: &[Verdict], now: Time) {
        let mut since: BTreeMap<ThreadId, Time> = BTreeMap::new();
        for verdict in contended {
            for one in &verdict.threads {
                let from = since.entry(one.thread).or_insert(verdict.first);
                *from = (*from).min(verdict.first);
            }
        }
        self.advance(times, &since.keys().copied().collect());
        for time in times {
            let Some(&from) = since.get(&time.thread) else {
                continue;
            };
            let used = self.0.entry(time.thread).or_default();
            if !std::mem::replace(&mut used.ever, true) {
                // A line is known to be contended some time after threads began to contend.
                let life = now.nanoseconds_since(time.first).max(1) as f64;
                let contended = now.nanoseconds_since(from.max(time.first)) as f64;
                used.contended_ns = used.cpu_ns as f64 * (contended / life).min(1.0);
            }
        }
    }

    /// Takes in the threads' times at the end.
    pub fn end(&mut self, times: &[ThreadTime]) {
        let contend = self.0.iter().filter(|(_, used)| used.contends);
        let contend = contend.map(|(thread, _)| *thread).collect();
        self.advance(times, &contend);
    }

    fn advance(&mut self, times: &[ThreadTime], contend: &BTreeSet<ThreadId>) {
        for time in times {
            let used = self.0.entry(time.thread).or_default();
            let more = time.cpu_ns.saturating_sub(used.cpu_ns);
            let contends = contend.contains(&time.thread);
            if contends && used.ever {
                used.contended_ns += more as f64;
            }
            (used.cpu_ns, used.contends) = (time.cpu_ns, contends);
        }
    }

    /// By thread.
    pub fn all(&self) -> impl Iterator<Item = (ThreadId, Used)> {
        self.0.iter().map(|(thread, used)| (*thread, *used))
    }
}
