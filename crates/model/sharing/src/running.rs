//! Which threads run at a given moment, as far as samples tell. A line changes hands fast only
//! between threads that run at the same time. Threads that take turns, as those that wait for
//! one lock do, pass the line on once a turn, however finely the samples on the line alternate.
//! Called by the judge for every sample.

use crate::hash::Map;
use sunder_access::{ThreadId, Time};

/// A running thread is sampled once a period. A gap of up to this many periods is taken for
/// lost or delayed samples, not for a pause of the thread.
const GAP_PERIODS: u64 = 4;

/// The time until which each thread can be taken to run, by its latest sample, and when threads have
/// ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct Running {
    until: Map<ThreadId, Time>,
    ended: Map<ThreadId, Time>,
}

impl Running {
    /// `thread` was sampled at `time`; samples of it are `period_ns` of its CPU time apart.
    pub fn sampled(&mut self, thread: ThreadId, time: Time, period_ns: u64) {
        let until = Time(time.0.saturating_add(period_ns.saturating_mul(GAP_PERIODS)));
        let known = self.until.entry(thread).or_insert(until);
        *known = (*known).max(until);
        // The number may be that of a new thread.
        if self.ended.get(&thread).is_some_and(|ended| *ended < time) {
            self.ended.remove(&thread);
        }
    }

    /// `thread` has ended.
    pub fn ended(&mut self, thread: ThreadId, time: Time) {
        self.ended.insert(thread, time);
    }

    /// Whether `thread` had ended by `time`.
    pub fn has_ended(&self, thread: ThreadId, time: u64) -> bool {
        self.ended.get(&thread).is_some_and(|ended| ended.0 <= time)
    }

    /// Whether `thread` can be taken to run at `time`, which must not be much earlier than the
    /// latest sample. A thread that is never sampled may run at any time.
    pub fn may_run(&self, thread: ThreadId, time: u64) -> bool {
        self.until.get(&thread).is_none_or(|until| time <= until.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const T: ThreadId = ThreadId(1);

    #[test]
    fn a_thread_runs_on_for_some_periods_after_a_sample() {
        let mut running = Running::default();
        assert!(running.may_run(T, 0), "nothing is known of it");
        running.sampled(T, Time(1000), 10);
        assert!(running.may_run(T, 1000 + 10 * GAP_PERIODS));
        assert!(!running.may_run(T, 1001 + 10 * GAP_PERIODS));
        // One that comes late changes nothing.
        running.sampled(T, Time(500), 10);
        assert!(running.may_run(T, 1000 + 10 * GAP_PERIODS));
    }

    #[test]
    fn a_thread_has_ended_until_another_has_its_number() {
        let mut running = Running::default();
        running.sampled(T, Time(1000), 10);
        assert!(!running.has_ended(T, 2000));
        running.ended(T, Time(1500));
        assert!(running.has_ended(T, 1500) && !running.has_ended(T, 1499));
        // A sample from before its end, which is delivered after it.
        running.sampled(T, Time(1400), 10);
        assert!(running.has_ended(T, 2000));
        running.sampled(T, Time(1600), 10);
        assert!(!running.has_ended(T, 2000));
    }
}
