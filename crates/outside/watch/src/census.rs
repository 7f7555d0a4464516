//! The first stage: which processes have threads that run on two CPUs at once. Counts samples, and
//! looks at nothing else, so that a quiet process costs its samples only. Pure.

use std::collections::HashMap;
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::RawSample;

/// The most processes that are counted. One that is beyond it is not seen until others have no samples
/// in a period.
const MOST_PROCESSES: usize = 16_384;
/// The most threads of one process whose times are kept apart.
const MOST_THREADS: usize = 512;
/// The most threads of all processes whose times are kept apart.
const MOST_THREADS_IN_ALL: usize = 100_000;
/// Two samples are of one moment if so many periods lie between them at most.
const PERIODS: u64 = 2;

/// What has been counted of each process since the period began.
#[derive(Debug, Default)]
pub struct Census {
    processes: HashMap<ProcessId, Counted>,
    threads: usize,
}

/// One process.
#[derive(Clone, Debug, Default)]
struct Counted {
    time_ns: u64,
    /// Time in which two threads ran on two CPUs.
    at_once_ns: u64,
    threads: HashMap<ThreadId, u64>,
    /// The last sample: thread, CPU, time.
    last: Option<(ThreadId, u32, u64)>,
}

impl Census {
    /// Counts a sample.
    pub fn sampled(&mut self, sample: &RawSample) {
        let is_known = self.processes.contains_key(&sample.process);
        if !is_known && self.processes.len() >= MOST_PROCESSES {
            return;
        }
        let counted = self.processes.entry(sample.process).or_default();
        counted.time_ns = counted.time_ns.saturating_add(sample.period_ns);
        let room = counted.threads.len() < MOST_THREADS && self.threads < MOST_THREADS_IN_ALL;
        if let Some(time) = counted.threads.get_mut(&sample.thread) {
            *time = time.saturating_add(sample.period_ns);
        } else if room {
            self.threads += 1;
            counted.threads.insert(sample.thread, sample.period_ns);
        }
        let now = (sample.thread, sample.cpu, sample.time.0);
        if let Some((thread, cpu, time)) = counted.last.replace(now)
            && thread != sample.thread
            && cpu != sample.cpu
            && sample.time.0.abs_diff(time) <= sample.period_ns.saturating_mul(PERIODS)
        {
            counted.at_once_ns = counted.at_once_ns.saturating_add(sample.period_ns);
        }
    }

    /// Whether something of the process has been counted.
    pub fn has(&self, process: ProcessId) -> bool {
        self.processes.contains_key(&process)
    }

    /// The process has ended, or executes another program.
    pub fn forget(&mut self, process: ProcessId) {
        if let Some(counted) = self.processes.remove(&process) {
            self.threads -= counted.threads.len();
        }
    }

    /// The processes in which threads ran at once for `least_ns` or longer, those with the most such
    /// time first.
    pub fn at_once(&self, least_ns: u64) -> Vec<ProcessId> {
        let all = self.processes.iter();
        let mut some: Vec<_> = all
            .filter(|(_, counted)| counted.at_once_ns >= least_ns.max(1))
            .map(|(process, counted)| (counted.at_once_ns, *process))
            .collect();
        some.sort_by_key(|&(time, process)| (std::cmp::Reverse(time), process));
        some.into_iter().map(|(_, process)| process).collect()
    }

    /// Seconds of CPU time of some threads of a process since the period began.
    pub fn seconds_of(&self, process: ProcessId, threads: &[ThreadId]) -> f64 {
        let counted = self.processes.get(&process);
        let of = |thread| counted.and_then(|counted| counted.threads.get(thread));
        threads.iter().filter_map(of).sum::<u64>() as f64 / 1e9
    }

    /// How many processes had samples.
    pub fn count(&self) -> usize {
        self.processes.len()
    }

    /// Begins a period. Processes without samples in the last one are forgotten; how long threads ran
    /// at once counts half.
    pub fn begin_period(&mut self) {
        self.processes.retain(|_, counted| counted.time_ns > 0);
        for counted in self.processes.values_mut() {
            counted.time_ns = 0;
            counted.at_once_ns /= 2;
            counted.threads = HashMap::new();
        }
        self.threads = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Time;
    use sunder_observe::Registers;

    const MS: u64 = 1_000_000;

    fn sample(process: u32, thread: u32, cpu: u32, at_ms: u64) -> RawSample {
        RawSample {
            time: Time(at_ms * MS),
            process: ProcessId(process),
            thread: ThreadId(thread),
            cpu,
            period_ns: 10 * MS,
            registers: Registers::default(),
        }
    }

    #[test]
    fn only_threads_on_two_cpus_at_one_moment_run_at_once() {
        let mut census = Census::default();
        for turn in 0..10 {
            let at = turn * 100;
            // Two threads beside each other; two that share a CPU; two a long time apart; one alone
            // that moves.
            census.sampled(&sample(1, 1, 0, at));
            census.sampled(&sample(1, 2, 1, at + 5));
            census.sampled(&sample(2, 3, 0, at));
            census.sampled(&sample(2, 4, 0, at + 10));
            census.sampled(&sample(3, 5, 0, at));
            census.sampled(&sample(3, 6, 1, at + 50));
            census.sampled(&sample(4, 7, (turn % 2) as u32, at));
        }
        assert_eq!(census.at_once(1), [ProcessId(1)]);
        assert_eq!(census.at_once(100 * MS), [ProcessId(1)]);
        assert_eq!(census.at_once(101 * MS), []);
        assert_eq!(census.count(), 4);
        let seconds = census.seconds_of(ProcessId(1), &[ThreadId(1), ThreadId(9)]);
        assert!((seconds - 0.1).abs() < 1e-9, "{seconds}");
    }

    #[test]
    fn what_has_no_samples_any_more_is_forgotten() {
        let mut census = Census::default();
        for process in 0..MOST_PROCESSES as u32 + 10 {
            for thread in 0..10 {
                census.sampled(&sample(process, process * 10 + thread, 0, 0));
            }
        }
        assert_eq!(census.count(), MOST_PROCESSES);
        assert!(census.threads <= MOST_THREADS_IN_ALL);
        census.begin_period();
        census.sampled(&sample(7, 70, 0, 1));
        census.begin_period();
        assert_eq!(census.count(), 1);
        census.forget(ProcessId(7));
        assert_eq!((census.count(), census.threads), (0, 0));
    }
}
