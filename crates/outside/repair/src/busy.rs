//! Whether a program's threads wait for copies of code for most of the time. Each answer takes some
//! milliseconds, so code that asks again and again, always with other registers, stands still more
//! than it runs, and clocks of CPU time do not show it. Called by `serve`. Pure.

use std::collections::HashSet;
use std::time::{Duration, Instant};

/// The time over which the share is taken. Right after a move all code asks once, for up to a tenth
/// of a second or two.
const WINDOW: Duration = Duration::from_millis(400);

/// The same for the last thread of a program: it has nobody to contend with, and mostly frees or prints
/// what the others have left.
const OF_THE_LAST: Duration = Duration::from_millis(100);

/// The largest share of the time that answers may take.
const MOST: f64 = 0.5;

/// How long answers took lately.
#[derive(Debug)]
pub struct Busy {
    /// How many answers can be made at the same time.
    workers: usize,
    long: Window,
    short: Window,
}

/// A part of the time.
#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    spent: Duration,
    /// The threads that asked since then. Those beyond the number of workers make no difference.
    threads: HashSet<u32>,
}

impl Busy {
    /// Nothing was asked yet. `workers` answers can be made at the same time.
    pub fn new(workers: usize) -> Self {
        Self {
            workers,
            long: Window::default(),
            short: Window::default(),
        }
    }

    /// An answer to `thread` took from `begun` to `now`. Returns whether answers took too much of the
    /// time since the window began, of the threads that asked. `is_last`: whether the program has no
    /// other thread.
    pub fn took(
        &mut self,
        thread: u32,
        begun: Instant,
        now: Instant,
        is_last: impl FnOnce() -> bool,
    ) -> bool {
        let one = (thread, begun, now);
        let short = self.short.took(one, self.workers, OF_THE_LAST);
        let long = self.long.took(one, self.workers, WINDOW);
        long || short && is_last()
    }
}

impl Window {
    /// As [`Busy::took`], for a window of this length.
    fn took(
        &mut self,
        (thread, begun, now): (u32, Instant, Instant),
        workers: usize,
        window: Duration,
    ) -> bool {
        let since = *self.since.get_or_insert(begun);
        self.spent += now.saturating_duration_since(begun);
        if self.threads.len() < workers {
            self.threads.insert(thread);
        }
        let length = now.saturating_duration_since(since);
        if length < window {
            return false;
        }
        let too_much = self.spent > length.mul_f64(MOST * self.threads.len() as f64);
        *self = Self::default();
        too_much
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Eight threads ask at the same time, again and again.
    #[test]
    fn threads_that_are_answered_at_the_same_time_may_wait_as_one_that_is_alone() {
        let start = Instant::now();
        let too_much = |workers: usize, every: u64| {
            let mut busy = Busy::new(workers);
            (0..1000 / every).any(|n| {
                let begun = start + Duration::from_millis(n * every);
                let end = begun + Duration::from_millis(5);
                (1..=8).any(|thread| busy.took(thread, begun, end, || false))
            })
        };
        assert!(!too_much(8, 20), "each waits for a quarter of the time");
        assert!(too_much(8, 6), "each waits nearly always");
        assert!(
            too_much(1, 20),
            "one answers eight, which takes 40 ms of 20"
        );
    }

    /// Answers of 5 ms, one every `every` ms for `ms` ms. Whether they were too much.
    fn asked(busy: &mut Busy, from: Instant, every: u64, ms: u64) -> bool {
        (0..ms / every).any(|n| {
            let begun = from + Duration::from_millis(n * every);
            busy.took(1, begun, begun + Duration::from_millis(5), || false)
        })
    }

    #[test]
    fn questions_that_never_end_are_too_much_and_those_at_the_beginning_are_not() {
        let start = Instant::now();
        assert!(asked(&mut Busy::new(8), start, 6, 1000));
        assert!(!asked(&mut Busy::new(8), start, 20, 5000));
        let mut busy = Busy::new(8);
        assert!(!asked(&mut busy, start, 5, 150), "the first 150 ms");
        let later = start + Duration::from_secs(2);
        assert!(
            !asked(&mut busy, later, 50, 2000),
            "now and then afterwards"
        );
    }

    #[test]
    fn the_last_thread_waits_for_a_shorter_time() {
        let start = Instant::now();
        let waits = |is_last: bool, every: u64| {
            let mut busy = Busy::new(8);
            let times = (0..).map(|n| Duration::from_millis(n * every));
            let mut until = times.take_while(|time| *time < Duration::from_secs(1));
            until.find(|&time| {
                let begun = start + time;
                busy.took(1, begun, begun + Duration::from_millis(5), || is_last)
            })
        };
        let within = |ms| Duration::from_millis(ms)..Duration::from_millis(ms + 10);
        assert!(within(95).contains(&waits(true, 6).expect("at last")));
        assert!(within(395).contains(&waits(false, 6).expect("at last")));
        assert_eq!(waits(true, 20), None, "it gets on");
    }
}
