//! For how long each two threads ran beside each other on two CPUs, from the CPUs and times of samples.
//! Only then do they contend: with more threads than CPUs it depends on the scheduler who meets whom.
//! Fed by the session with every sample; it must not look at addresses.

use std::collections::{HashMap, VecDeque};
use sunder_access::ThreadId;
use sunder_observe::RawSample;

/// Samples come nearly in the order of time: so many wait until they are put in order, and the older
/// half is looked at.
const WAITING: usize = 4096;

/// The most CPUs whose samples are compared. With more of them, threads seldom share one.
const MOST_CPUS: usize = 16;

/// The most earlier turns with which a turn is compared: some of each CPU.
const MOST_EARLIER: usize = 4 * MOST_CPUS;

/// The most pairs of threads.
const MOST_PAIRS: usize = 1 << 16;

/// A CPU had one thread all the time if two of its samples are at most so many periods apart: a thread
/// may have run for nearly a period before the next one did.
const BUSY: u64 = 3;

/// A time in which a thread ran on a CPU, as one sample tells it.
#[derive(Clone, Copy, Debug)]
struct Turn {
    thread: ThreadId,
    cpu: u32,
    from: u64,
    until: u64,
    /// The CPU time that the sample stands for.
    period: u64,
}

/// The times of one thread, in ns.
#[derive(Clone, Copy, Debug, Default)]
struct Times {
    /// Of its turns.
    turns: u64,
    /// Its CPU time.
    cpu: u64,
}

impl Times {
    /// Of one ns of its turns, the part in which it ran.
    fn density(self) -> f64 {
        self.cpu as f64 / self.turns.max(1) as f64
    }
}

/// What is known so far.
#[derive(Debug, Default)]
pub struct Beside {
    waiting: Vec<Turn>,
    /// Those that were counted last.
    earlier: VecDeque<Turn>,
    /// By CPU: its last turn, which is not counted yet: a later one may end it.
    last: HashMap<u32, Turn>,
    threads: HashMap<ThreadId, Times>,
    /// Nanoseconds of two threads at once, the lower number first.
    pairs: HashMap<(ThreadId, ThreadId), u64>,
    /// Whether there were too many CPUs or pairs, or a sample that does not tell its CPU.
    unknown: bool,
}

impl Beside {
    /// Takes a sample.
    pub fn sampled(&mut self, sample: &RawSample) {
        if self.unknown {
            return;
        }
        if sample.cpu == RawSample::NO_CPU {
            self.give_up();
            return;
        }
        self.waiting.push(Turn {
            thread: sample.thread,
            cpu: sample.cpu,
            from: sample.time.0.saturating_sub(sample.period_ns),
            until: sample.time.0,
            period: sample.period_ns,
        });
        if self.waiting.len() >= WAITING {
            self.look(WAITING / 2);
        }
    }

    /// The share of the thread's time, 0 to 1, in which one of `rivals` ran beside it; at most, since
    /// two rivals may run at once. `None` if samples do not tell.
    pub fn share(
        &mut self,
        thread: ThreadId,
        rivals: impl Iterator<Item = ThreadId>,
    ) -> Option<f64> {
        self.look(self.waiting.len());
        if self.unknown {
            return None;
        }
        let own = *self.threads.get(&thread)?;
        let with = |rival: ThreadId| {
            let pair = (thread.min(rival), thread.max(rival));
            let together = self.pairs.get(&pair).copied().unwrap_or(0);
            let of_rival = self
                .threads
                .get(&rival)
                .map_or(0.0, |times| times.density());
            together as f64 * of_rival
        };
        let beside: f64 = rivals.map(with).sum();
        Some((beside / own.turns.max(1) as f64).min(1.0))
    }

    /// Looks at the `count` oldest of those that wait.
    fn look(&mut self, count: usize) {
        self.waiting.sort_unstable_by_key(|turn| turn.until);
        let rest = self.waiting.split_off(count.min(self.waiting.len()));
        for turn in std::mem::replace(&mut self.waiting, rest) {
            self.add(turn);
        }
    }

    /// Takes the next sample of a CPU: between it and the one before, that one's thread or this one's
    /// ran, each for half of the time if it is not the same, and if that is not too long.
    fn add(&mut self, mut turn: Turn) {
        if let Some(mut before) = self.last.get(&turn.cpu).copied() {
            let gap = turn.until.saturating_sub(before.until);
            if gap <= turn.period.saturating_mul(BUSY) {
                let middle = before.until + gap / 2;
                if before.thread == turn.thread {
                    turn.from = before.until;
                } else {
                    (before.until, turn.from) = (middle, middle);
                }
            }
            self.count(before);
        }
        self.last.insert(turn.cpu, turn);
        if self.last.len() > MOST_CPUS || self.pairs.len() > MOST_PAIRS {
            self.give_up();
        }
    }

    /// Counts a turn that has ended.
    fn count(&mut self, turn: Turn) {
        let times = self.threads.entry(turn.thread).or_default();
        times.turns += turn.until.saturating_sub(turn.from);
        times.cpu += turn.period;
        for other in self.earlier.iter().rev() {
            let from = other.from.max(turn.from);
            let together = other.until.min(turn.until).saturating_sub(from);
            if together > 0 && other.thread != turn.thread {
                let pair = (turn.thread.min(other.thread), turn.thread.max(other.thread));
                *self.pairs.entry(pair).or_default() += together;
            }
        }
        self.earlier.push_back(turn);
        if self.earlier.len() > MOST_EARLIER {
            self.earlier.pop_front();
        }
    }

    fn give_up(&mut self) {
        *self = Self {
            unknown: true,
            ..Self::default()
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_access::{ProcessId, Time};
    use sunder_observe::Registers;

    const MS: u64 = 1_000_000;

    /// Two seconds of samples, one for each `period` ms of a thread's time. `on` tells the threads that
    /// have CPUs 0, 1, … in each millisecond.
    fn of(period: u64, on: impl Fn(u64) -> Vec<u32>) -> Beside {
        let mut beside = Beside::default();
        let mut used: HashMap<u32, u64> = HashMap::new();
        for millisecond in 1..2000 {
            // Rings of CPUs are read one after another, so samples of a moment come in any order.
            for (cpu, thread) in on(millisecond).into_iter().enumerate().rev() {
                let used = used.entry(thread).or_default();
                *used += 1;
                if used.is_multiple_of(period) {
                    beside.sampled(&RawSample {
                        time: Time(millisecond * MS),
                        process: ProcessId(1),
                        thread: ThreadId(thread),
                        cpu: cpu as u32,
                        period_ns: period * MS,
                        registers: Registers::default(),
                    });
                }
            }
        }
        beside
    }

    fn share(beside: &mut Beside, thread: u32, rivals: &[u32]) -> f64 {
        let rivals = rivals.iter().map(|&rival| ThreadId(rival));
        beside.share(ThreadId(thread), rivals).expect("known")
    }

    #[test]
    fn two_threads_on_two_cpus_run_beside_each_other_all_the_time() {
        let mut both = of(1, |_| vec![1, 2]);
        assert!(share(&mut both, 1, &[2]) > 0.99);
        assert!(share(&mut both, 2, &[1]) > 0.99);
        assert!(share(&mut both, 1, &[3]) < 0.01);
    }

    /// Threads 1 and 2 have the two CPUs in turn with 3 and 4, for 4 ms each.
    #[test]
    fn threads_that_take_turns_do_not_meet() {
        let turns = |ms: u64| {
            if (ms / 4).is_multiple_of(2) {
                vec![1, 2]
            } else {
                vec![3, 4]
            }
        };
        let mut beside = of(1, turns);
        assert!(share(&mut beside, 1, &[2]) > 0.99);
        assert!(share(&mut beside, 1, &[3, 4]) < 0.01);
    }

    /// Thread 1 keeps its CPU, and the others take turns of 3 ms on the other one. One sample each 4 ms
    /// of a thread tells that as well.
    #[test]
    fn a_third_of_the_time_beside_each_of_three() {
        let mut beside = of(4, |ms| vec![1, 2 + (ms / 3 % 3) as u32]);
        for rival in 2..=4 {
            let one = share(&mut beside, 1, &[rival]);
            assert!((0.28..0.38).contains(&one), "{rival}: {one}");
            let back = share(&mut beside, rival, &[1]);
            assert!(back > 0.9, "{rival}: {back}");
        }
        let all = share(&mut beside, 1, &[2, 3, 4]);
        assert!(all > 0.95, "{all}");
    }

    #[test]
    fn samples_without_a_cpu_tell_nothing() {
        let mut beside = of(1, |_| vec![1, 2]);
        beside.sampled(&RawSample {
            time: Time(0),
            process: ProcessId(1),
            thread: ThreadId(1),
            cpu: RawSample::NO_CPU,
            period_ns: MS,
            registers: Registers::default(),
        });
        assert_eq!(
            beside.share(ThreadId(1), std::iter::once(ThreadId(2))),
            None
        );
    }

    #[test]
    fn memory_is_bounded() {
        let mut beside = of(1, |ms| vec![ms as u32 * 2, ms as u32 * 2 + 1]);
        beside.look(WAITING);
        assert!(beside.earlier.len() <= MOST_EARLIER);
        let mut many = of(1, |ms| {
            (0..20).map(|cpu| cpu + 20 * (ms as u32 % 2)).collect()
        });
        assert_eq!(many.share(ThreadId(1), std::iter::once(ThreadId(2))), None);
    }
}
