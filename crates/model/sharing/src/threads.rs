//! The time that was observed of each thread. Called by the judge for everything that it takes in.

use crate::hash::Map;
use sunder_access::{ThreadId, Time};

/// What was observed of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadTime {
    /// The thread.
    pub thread: ThreadId,
    /// CPU time that its samples stand for, in ns.
    pub cpu_ns: u64,
    /// The number of its samples.
    pub samples: u64,
    /// When the thread was first seen.
    pub first: Time,
    /// When the thread was last seen.
    pub last: Time,
}

/// All threads seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Threads(Map<ThreadId, ThreadTime>);

impl Threads {
    /// These threads.
    pub fn of(all: Vec<ThreadTime>) -> Self {
        Self(all.into_iter().map(|time| (time.thread, time)).collect())
    }

    /// `thread` was seen at `time`, in a sample that stands for `cpu_ns` of CPU time, or (0) in
    /// something else.
    pub fn see(&mut self, time: Time, thread: ThreadId, cpu_ns: u64) {
        let seen = self.0.entry(thread).or_insert(ThreadTime {
            thread,
            cpu_ns: 0,
            samples: 0,
            first: time,
            last: time,
        });
        seen.cpu_ns += cpu_ns;
        seen.samples += u64::from(cpu_ns > 0);
        seen.first = seen.first.min(time);
        seen.last = seen.last.max(time);
    }

    /// CPU time observed of a thread; without samples in time, the time between its first and
    /// last access.
    pub fn time_of(&self, thread: ThreadId) -> f64 {
        self.0.get(&thread).map_or(0.0, |t| {
            if t.samples > 0 {
                t.cpu_ns as f64
            } else {
                t.last.nanoseconds_since(t.first) as f64
            }
        })
    }

    /// When the thread was last seen; the beginning of time if never.
    pub fn last_seen(&self, thread: ThreadId) -> Time {
        self.0.get(&thread).map_or(Time(0), |t| t.last)
    }

    /// All of them, by number.
    pub fn by_number(&self) -> Vec<ThreadTime> {
        let mut all: Vec<ThreadTime> = self.0.values().copied().collect();
        all.sort_by_key(|t| t.thread);
        all
    }
}
