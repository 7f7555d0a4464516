//! For how much of the time two threads ran at once, from the CPUs and times of samples. Threads that
//! share a CPU, on a busy machine or under an affinity mask, can't show false sharing. Fed by the
//! session with every sample; it must not look at addresses.

use std::collections::{BTreeMap, HashMap};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::RawSample;

/// A slice of time is as long as so many periods of its samples, so that it has several of each
/// thread that runs.
const PERIODS: u64 = 4;

/// The shortest slice, in nanoseconds.
const SHORTEST: u64 = 4_000_000;

/// The most slices that are kept before the oldest are summed up; samples come nearly in order.
const MOST_SLICES: usize = 256;

/// The most threads whose times are kept.
const MOST_THREADS: usize = 1 << 16;

/// A thread with a larger share of the time than this did nearly all of the work.
const NEARLY_ALL: f64 = 0.95;

/// What is known so far.
#[derive(Debug, Default)]
pub struct AtOnce {
    /// By the slice's length and number: the time of samples by CPU.
    slices: BTreeMap<(u64, u64), Vec<(u32, u64)>>,
    /// Nanoseconds in which a thread ran.
    ran: f64,
    /// Nanoseconds in which two ran, at most.
    at_once: f64,
    /// Nanoseconds of each thread.
    threads: HashMap<(ProcessId, ThreadId), u64>,
    /// The CPU of the first sample.
    first_cpu: Option<u32>,
    /// Whether there were samples of another.
    on_others: bool,
    /// Whether a sample does not tell its CPU.
    without_cpu: bool,
}

/// What samples told of the threads' CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Told {
    /// The share of the time in which a thread ran, 0 to 100, in which two did, at most; `None` if no
    /// sample tells, or if one thread did nearly all of the work, so that no other had to run with it.
    pub at_once_percent: Option<f64>,
    /// The CPU of all samples, if it is one.
    pub only_cpu: Option<u32>,
    /// Whether samples do not tell their CPU.
    pub without_cpu: bool,
}

impl AtOnce {
    /// Takes a sample.
    pub fn sampled(&mut self, sample: &RawSample) {
        if sample.cpu == RawSample::NO_CPU {
            self.without_cpu = true;
            return;
        }
        let first = *self.first_cpu.get_or_insert(sample.cpu);
        self.on_others |= first != sample.cpu;
        let thread = (sample.process, sample.thread);
        if self.threads.len() < MOST_THREADS || self.threads.contains_key(&thread) {
            let time = self.threads.entry(thread).or_default();
            *time = time.saturating_add(sample.period_ns);
        }
        let wanted = sample.period_ns.saturating_mul(PERIODS).max(SHORTEST);
        let length = wanted.checked_next_power_of_two().unwrap_or(1 << 63);
        let slice = (length, sample.time.0 / length);
        let slice = self.slices.entry(slice).or_default();
        match slice.iter_mut().find(|cpu| cpu.0 == sample.cpu) {
            Some(cpu) => cpu.1 = cpu.1.saturating_add(sample.period_ns),
            None => slice.push((sample.cpu, sample.period_ns)),
        }
        while self.slices.len() > MOST_SLICES
            && let Some(((length, _), cpus)) = self.slices.pop_first()
        {
            self.add(length, &cpus);
        }
    }

    /// In a slice, a CPU that ran threads for most of the time was idle or elsewhere for the rest. Two
    /// ran at once for at most as long as all CPUs but the busiest ran.
    fn add(&mut self, length: u64, cpus: &[(u32, u64)]) {
        let busy = cpus.iter().map(|cpu| cpu.1.min(length) as f64);
        let most = busy.clone().fold(0.0, f64::max);
        let all: f64 = busy.sum();
        self.ran += most;
        self.at_once += (all - most).min(most);
    }

    /// Sums up.
    pub fn finish(mut self) -> Told {
        for ((length, _), cpus) in std::mem::take(&mut self.slices) {
            self.add(length, &cpus);
        }
        let all: u64 = self.threads.values().sum();
        let most = self.threads.values().max().copied().unwrap_or(0);
        let is_of_several = (most as f64) < all as f64 * NEARLY_ALL;
        let tells = self.ran > 0.0 && is_of_several;
        let is_known = !self.on_others && !self.without_cpu;
        Told {
            at_once_percent: tells.then(|| 100.0 * self.at_once / self.ran),
            only_cpu: self.first_cpu.filter(|_| is_known),
            without_cpu: self.without_cpu,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::Time;
    use sunder_observe::Registers;

    const MS: u64 = 1_000_000;

    /// Samples a millisecond apart of the threads that `on` tells for each millisecond, with the CPUs
    /// on which they run.
    fn of(on: impl Fn(u64) -> Vec<(u32, u32)>) -> Option<f64> {
        let mut at_once = AtOnce::default();
        for millisecond in 0..2000 {
            for (thread, cpu) in on(millisecond) {
                at_once.sampled(&RawSample {
                    time: Time(millisecond * MS),
                    process: ProcessId(1),
                    thread: ThreadId(thread),
                    cpu,
                    period_ns: MS,
                    registers: Registers::default(),
                });
            }
        }
        at_once.finish().at_once_percent
    }

    #[test]
    fn two_threads_on_two_cpus_run_at_once() {
        assert_eq!(of(|_| vec![(1, 0), (2, 1)]), Some(100.0));
        // Half of the time one is alone.
        let both = |ms| {
            if ms < 1000 {
                vec![(1, 0), (2, 1)]
            } else {
                vec![(1, 0)]
            }
        };
        let half = of(both);
        assert!((49.0..51.0).contains(&half.unwrap_or(0.0)), "{half:?}");
    }

    /// They take turns of 2 ms, as they do if another program has the other CPU.
    #[test]
    fn two_threads_on_one_cpu_never_do() {
        let turns = |ms: u64| (ms / 2 % 2) as u32;
        assert_eq!(of(|ms| vec![(turns(ms), 1)]), Some(0.0));
        // Both move to the other CPU now and then.
        let moving = of(|ms| vec![(turns(ms), (ms / 500 % 2) as u32)]);
        assert!(moving.is_some_and(|percent| percent < 1.0), "{moving:?}");
    }

    #[test]
    fn a_thread_that_does_the_work_alone_tells_nothing() {
        let helper = |ms: u64| if ms.is_multiple_of(100) { 2 } else { 1 };
        assert_eq!(of(|ms| vec![(helper(ms), 0)]), None);
    }

    #[test]
    fn without_samples_nothing_is_known() {
        assert_eq!(of(|_| Vec::new()), None);
    }

    #[test]
    fn a_long_run_takes_no_more_memory() {
        let mut at_once = AtOnce::default();
        for slice in 0..100_000 {
            at_once.sampled(&RawSample {
                time: Time(slice * 10 * MS),
                process: ProcessId(1),
                thread: ThreadId(1),
                cpu: 0,
                period_ns: MS,
                registers: Registers::default(),
            });
        }
        assert!(at_once.slices.len() <= MOST_SLICES);
    }
}
