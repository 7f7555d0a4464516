//! How fast threads get on before their bytes are moved or they are isolated, for comparison with the speed
//! afterwards. Called by `repair` and `protect` at each step. Only reads.
//!
//! Threads that take turns on a CPU do not contend, and are as fast as after any move. So a window in
//! which they waited for CPUs longer than so many threads must is followed by another, a few times, and
//! the best one counts.

use crate::gauge::{Bytes, Gauge, Windows};
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::{machine, proc};

/// Threads took turns if they could have run for so much longer, as a part of the time that they ran,
/// had they had all CPUs that they can use at once.
const CROWDED: f64 = 0.2;
/// The same for a large gain: two threads that ran at once for half of their time at least, and are twice as
/// fast when nothing is shared, still seem to get on 1.3 times as fast.
const RATHER_CROWDED: f64 = 0.5;
/// How many windows are tried.
const TRIES: u32 = 3;
/// Older windows tell nothing of the present.
const OLD: Duration = Duration::from_millis(400);

/// Measurement of threads of which something may be taken apart.
#[derive(Default)]
pub enum Before {
    /// No thread is measured.
    #[default]
    Nothing,
    /// Threads are measured.
    Measuring(Box<Measuring>),
    /// The threads can't be measured.
    Refused,
}

/// How well threads were measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measured {
    /// No window is complete.
    Not,
    /// In a window in which they took turns, which makes a gain look smaller than it is.
    Once,
    /// In a window in which they ran at once for so long that a large gain shows.
    ForLarge,
    /// There is nothing more to wait for.
    Well,
}

/// Threads that are being measured, by these bytes.
pub struct Measuring {
    process: ProcessId,
    threads: Vec<ThreadId>,
    bytes: Vec<Bytes>,
    gauge: Gauge,
    began: Instant,
    /// How long they had waited for CPUs when the window began.
    waited: Duration,
    /// Windows that are complete.
    tries: u32,
    /// The best of them, and the part for which its threads waited.
    best: Option<(f64, Windows)>,
}

impl Measuring {
    fn begin(process: ProcessId, bytes: Vec<Bytes>) -> Option<Self> {
        let mut threads: Vec<ThreadId> = bytes.iter().map(|b| b.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        Some(Self {
            gauge: Gauge::begin(process, &threads)?,
            waited: waited(process, &threads),
            began: Instant::now(),
            process,
            threads,
            bytes,
            tries: 0,
            best: None,
        })
    }

    /// More bytes are known by which threads can be measured, of more threads perhaps. These join the
    /// first window.
    fn take_in(&mut self, bytes: Vec<Bytes>) {
        if self.tries > 0 {
            return;
        }
        for new in bytes {
            let is_same = |known: &Bytes| (known.thread, known.at) == (new.thread, new.at);
            if self.bytes.iter().any(is_same) {
                continue;
            }
            if !self.threads.contains(&new.thread) && self.gauge.join(new.thread) {
                self.threads.push(new.thread);
                self.waited += waited(self.process, &[new.thread]);
            }
            self.bytes.push(new);
        }
    }

    fn read(&mut self) {
        if self.is_over() {
            return;
        }
        self.gauge.read(&self.bytes);
        if !self.gauge.is_enough() {
            return;
        }
        self.tries += 1;
        let now = waited(self.process, &self.threads);
        let in_vain = now.saturating_sub(self.waited).as_secs_f64();
        let part = in_vain / self.gauge.cpu().as_secs_f64().max(1e-9);
        let windows = match Gauge::begin(self.process, &self.threads) {
            Some(next) => std::mem::replace(&mut self.gauge, next).end(),
            None => return self.tries = TRIES,
        };
        self.waited = now;
        if self.best.as_ref().is_none_or(|best| part < best.0) {
            self.best = Some((part, windows));
        }
    }

    fn is_over(&self) -> bool {
        self.tries >= TRIES || self.ran_at_once(CROWDED)
    }

    /// Whether there is a window in which the threads took no more turns than this.
    fn ran_at_once(&self, crowded: f64) -> bool {
        let threads = self.threads.len();
        let best = self.best.as_ref();
        best.is_some_and(|best| !took_turns(best.0, threads, machine::cpus(), crowded))
    }

    fn is_old(&self) -> bool {
        self.began.elapsed() > OLD
    }

    fn end(self) -> Windows {
        self.best
            .map_or_else(|| self.gauge.end(), |(_, windows)| windows)
    }
}

/// Whether `threads` that waited for CPUs for this part of the time that they ran took turns more than
/// so many must on so many CPUs, but for the part `crowded` of their time.
fn took_turns(waited: f64, threads: usize, cpus: usize, crowded: f64) -> bool {
    let at_once = threads as f64 / (1.0 + waited);
    at_once * (1.0 + crowded) < threads.min(cpus) as f64
}

/// How long the threads that live have waited for CPUs.
fn waited(process: ProcessId, threads: &[ThreadId]) -> Duration {
    let each = threads.iter();
    each.filter_map(|&thread| proc::waited_for_cpu(process, thread))
        .sum()
}

impl Before {
    /// Begins to measure, or goes on with more bytes; not in a dry run, which needs no comparison.
    pub fn measure(&mut self, process: ProcessId, bytes: Vec<Bytes>, dry_run: bool) {
        match self {
            _ if dry_run => return,
            Self::Measuring(measuring) if !measuring.is_old() => return measuring.take_in(bytes),
            Self::Nothing | Self::Measuring(_) => {}
            Self::Refused => return,
        }
        let begun = Measuring::begin(process, bytes).map(Box::new);
        *self = begun.map_or(Self::Refused, Self::Measuring);
    }

    /// Work of ours is done that took CPUs from the threads: a first window that is not complete begins
    /// anew. Else they would have taken turns in it, and another would have to follow.
    pub fn undisturbed(&mut self) {
        if let Self::Measuring(measuring) = self
            && measuring.tries == 0
            && let Some(anew) = Measuring::begin(measuring.process, measuring.bytes.clone())
        {
            **measuring = anew;
        }
    }

    /// Windows that tell nothing of the present any more are dropped.
    pub fn forget_old(&mut self) {
        if matches!(self, Self::Measuring(measuring) if measuring.is_old()) {
            *self = Self::Nothing;
        }
    }

    /// Reads all values at this moment.
    pub fn read(&mut self) {
        if let Self::Measuring(measuring) = self {
            measuring.read();
        }
    }

    /// How far it has come.
    pub fn measured(&self) -> Measured {
        match self {
            Self::Measuring(measuring) if measuring.is_over() => Measured::Well,
            Self::Measuring(measuring) if measuring.ran_at_once(RATHER_CROWDED) => {
                Measured::ForLarge
            }
            Self::Measuring(measuring) if measuring.best.is_some() => Measured::Once,
            Self::Nothing | Self::Measuring(_) => Measured::Not,
            Self::Refused => Measured::Well,
        }
    }

    /// The values that were read.
    pub fn end(self) -> Windows {
        match self {
            Self::Measuring(measuring) => measuring.end(),
            _ => Windows::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own_thread() -> ThreadId {
        let own = std::fs::read_link("/proc/thread-self").expect("it is mounted");
        let number = own.file_name().and_then(|name| name.to_str()?.parse().ok());
        ThreadId(number.expect("a number"))
    }

    #[test]
    fn more_threads_than_cpus_must_wait_and_do_not_take_more_turns_for_that() {
        // Nobody else needs the CPUs.
        assert!(!took_turns(0.05, 2, 2, CROWDED));
        assert!(!took_turns(1.05, 4, 2, CROWDED));
        assert!(!took_turns(1.0, 2, 1, CROWDED));
        assert!(!took_turns(0.0, 4, 16, CROWDED));
        // Somebody else had a third of them.
        assert!(took_turns(0.5, 2, 2, CROWDED));
        assert!(took_turns(2.0, 4, 2, CROWDED));
        assert!(took_turns(0.5, 4, 4, CROWDED));
        assert!(!took_turns(0.5, 2, 2, RATHER_CROWDED));
        assert!(took_turns(0.6, 2, 2, RATHER_CROWDED), "for less than half");
    }

    #[test]
    fn a_thread_that_is_known_later_joins_the_first_window() {
        let process = ProcessId(std::process::id());
        let bytes = |thread| Bytes {
            thread,
            original: 0x5000,
            at: 0x5000,
            len: 8,
        };
        let own = own_thread();
        let Some(mut measuring) = Measuring::begin(process, vec![bytes(own)]) else {
            println!("SKIP: the kernel lets us measure no thread");
            return;
        };
        let (tell, told) = std::sync::mpsc::channel();
        let (done, waits) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            tell.send(own_thread()).expect("it is waited for");
            let _ = waits.recv();
        });
        let other = told.recv().expect("it is told");
        measuring.take_in(vec![bytes(own), bytes(other)]);
        assert_eq!(measuring.threads, [own, other]);
        assert_eq!(measuring.bytes.len(), 2, "its own were known");
        // The first window begins anew, with the same threads, and others do not.
        let began = measuring.began;
        let mut before = Before::Measuring(Box::new(measuring));
        before.undisturbed();
        let Before::Measuring(mut measuring) = before else {
            panic!("it could be measured a moment ago");
        };
        assert!(measuring.began > began);
        assert_eq!(measuring.threads, [own, other]);
        assert_eq!(measuring.bytes.len(), 2);
        // The next window would not be like the one before.
        measuring.tries = 1;
        let began = measuring.began;
        let mut before = Before::Measuring(measuring);
        before.undisturbed();
        let Before::Measuring(mut measuring) = before else {
            panic!("it could be measured a moment ago");
        };
        assert_eq!(measuring.began, began);
        measuring.take_in(vec![bytes(ThreadId(1))]);
        assert_eq!(measuring.threads, [own, other]);
        // What was measured a while ago tells nothing.
        measuring.began = Instant::now();
        let mut before = Before::Measuring(measuring);
        before.forget_old();
        assert!(matches!(before, Before::Measuring(_)));
        if let (Before::Measuring(measuring), Some(then)) =
            (&mut before, Instant::now().checked_sub(OLD * 2))
        {
            measuring.began = then;
            before.forget_old();
            assert!(matches!(before, Before::Nothing));
        }
        drop(done);
        thread.join().expect("it ends");
    }
}
