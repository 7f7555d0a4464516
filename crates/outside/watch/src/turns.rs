//! When each process was looked at, and when it may be looked at again. One whose findings could not be named
//! waits longer each time: naming takes CPU time from the budget of all, and a file may be made to take much.

use std::collections::HashMap;
use std::time::{Duration, Instant};
use sunder_access::ProcessId;
use sunder_observe::proc;

/// The most processes that are remembered.
const MOST: usize = 16_384;
/// So many times longer than before a process waits after each failure.
const LONGER: u32 = 8;
/// The most failures that count: with an interval of a minute, the wait is two months then.
const MOST_FAILURES: u32 = 5;

/// See the module's head.
#[derive(Debug, Default)]
pub struct Turns {
    of: HashMap<ProcessId, Turn>,
}

#[derive(Clone, Copy, Debug)]
enum Turn {
    /// It was looked at then, and naming failed so often since it last succeeded.
    Looked { at: Instant, failures: u32 },
    /// It is not to be watched.
    Never,
}

/// Whether a process may be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Next {
    /// It was never looked at.
    First,
    /// It was looked at then, long enough ago.
    Again(Instant),
    /// Not now.
    NotNow,
}

impl Turns {
    /// Whether anything is remembered of it.
    pub fn has(&self, process: ProcessId) -> bool {
        self.of.contains_key(&process)
    }

    /// It has ended, or executes another program.
    pub fn forget(&mut self, process: ProcessId) {
        self.of.remove(&process);
    }

    /// It was looked at until `now`.
    pub fn looked(&mut self, process: ProcessId, now: Instant) {
        let failures = match self.of.get(&process) {
            Some(Turn::Looked { failures, .. }) => *failures,
            _ => 0,
        };
        self.remember(process, Turn::Looked { at: now, failures });
    }

    /// What was found in it was named, or could not be.
    pub fn named(&mut self, process: ProcessId, well: bool) {
        if let Some(Turn::Looked { failures, .. }) = self.of.get_mut(&process) {
            *failures = if well {
                0
            } else {
                MOST_FAILURES.min(*failures + 1)
            };
        }
    }

    /// It is not to be watched.
    pub fn never(&mut self, process: ProcessId) {
        self.remember(process, Turn::Never);
    }

    /// Whether it may be looked at now, if that is done once in an interval.
    pub fn next(&self, process: ProcessId, interval: Duration, now: Instant) -> Next {
        match self.of.get(&process) {
            None => Next::First,
            Some(Turn::Never) => Next::NotNow,
            Some(Turn::Looked { at, failures }) => {
                let wait = interval.saturating_mul(LONGER.pow(*failures));
                if now.saturating_duration_since(*at) < wait {
                    Next::NotNow
                } else {
                    Next::Again(*at)
                }
            }
        }
    }

    fn remember(&mut self, process: ProcessId, turn: Turn) {
        if self.of.len() >= MOST {
            self.of.retain(|&process, _| proc::is_alive(process));
        }
        if self.of.len() < MOST {
            self.of.insert(process, turn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);
    const ONE: ProcessId = ProcessId(1);

    #[test]
    fn a_process_is_looked_at_once_in_an_interval() {
        let mut turns = Turns::default();
        let begun = Instant::now();
        assert_eq!(turns.next(ONE, MINUTE, begun), Next::First);
        turns.looked(ONE, begun);
        assert_eq!(turns.next(ONE, MINUTE, begun + MINUTE / 2), Next::NotNow);
        assert_eq!(turns.next(ONE, MINUTE, begun + MINUTE), Next::Again(begun));
        turns.never(ONE);
        assert_eq!(turns.next(ONE, MINUTE, begun + 9 * MINUTE), Next::NotNow);
        turns.forget(ONE);
        assert_eq!(turns.next(ONE, MINUTE, begun), Next::First);
    }

    #[test]
    fn one_that_cannot_be_named_waits_longer_each_time() {
        let mut turns = Turns::default();
        let begun = Instant::now();
        turns.looked(ONE, begun);
        turns.named(ONE, false);
        assert_eq!(turns.next(ONE, MINUTE, begun + 7 * MINUTE), Next::NotNow);
        assert_eq!(
            turns.next(ONE, MINUTE, begun + 8 * MINUTE),
            Next::Again(begun)
        );
        let again = begun + 8 * MINUTE;
        turns.looked(ONE, again);
        turns.named(ONE, false);
        assert_eq!(turns.next(ONE, MINUTE, again + 63 * MINUTE), Next::NotNow);
        assert_eq!(
            turns.next(ONE, MINUTE, again + 64 * MINUTE),
            Next::Again(again)
        );
        turns.named(ONE, true);
        assert_eq!(turns.next(ONE, MINUTE, again + MINUTE), Next::Again(again));
        for _ in 0..100 {
            turns.named(ONE, false);
        }
        assert_eq!(turns.next(ONE, Duration::MAX, again + MINUTE), Next::NotNow);
    }

    #[test]
    fn those_that_were_never_looked_at_come_first_and_then_who_waits_longest() {
        let now = Instant::now();
        let mut all = [Next::Again(now + MINUTE), Next::First, Next::Again(now)];
        all.sort();
        assert_eq!(
            all,
            [Next::First, Next::Again(now), Next::Again(now + MINUTE)]
        );
    }
}
