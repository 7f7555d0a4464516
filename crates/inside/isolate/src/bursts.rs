//! Bursts: which accesses to pages under trial ([`sunder_wire::trial`]) a worker has told. Each costs two
//! signals, some microseconds, so there are few of them in a period.
//!
//! Called by [`crate::tracking`], in the worker's signal handler. Knows no control file and makes no system
//! call.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use sunder_wire::tracking::SHARED;

/// Accesses of a burst, to one page: several rounds of a loop that waits and hands data over.
const BURST: u8 = 48;
/// The most accesses that are told in one period, to all pages: about 1 ms of an interval of 10.
const PERIOD: u32 = 192;

/// What becomes of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is not told, nor are others of this period.
    Not,
    /// It is told, and so is the next one.
    Goes,
    /// It is told, and is the last one of its burst.
    Last,
}

/// The bursts of one worker, in its own memory.
pub struct Bursts {
    told: AtomicU32,
    /// Accesses to each page in its present burst, which may go on in later periods.
    count: [AtomicU8; SHARED],
    /// Whether the page had a whole burst in this period.
    done: [AtomicBool; SHARED],
}

impl Bursts {
    /// There was no burst.
    pub const fn new() -> Self {
        Self {
            told: AtomicU32::new(0),
            count: [const { AtomicU8::new(0) }; SHARED],
            done: [const { AtomicBool::new(false) }; SHARED],
        }
    }

    /// A period begins.
    pub fn begin(&self) {
        self.told.store(0, Relaxed);
        for done in &self.done {
            done.store(false, Relaxed);
        }
    }

    /// The thread uses the page at `index` of the shared pages.
    pub fn used(&self, index: usize) -> Told {
        let (Some(count), Some(done)) = (self.count.get(index), self.done.get(index)) else {
            return Told::Not;
        };
        if done.load(Relaxed) || self.told.fetch_add(1, Relaxed) >= PERIOD {
            return Told::Not;
        }
        let now = count.load(Relaxed) + 1;
        let over = now >= BURST;
        count.store(if over { 0 } else { now }, Relaxed);
        done.store(over, Relaxed);
        if over { Told::Last } else { Told::Goes }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_has_one_burst_in_a_period() {
        let bursts = Bursts::new();
        for _ in 0..3 {
            bursts.begin();
            let told = || bursts.used(5);
            assert!((1..BURST).all(|_| told() == Told::Goes));
            assert_eq!((told(), told()), (Told::Last, Told::Not));
        }
        assert_eq!(bursts.used(SHARED), Told::Not, "a page beyond the table");
    }

    #[test]
    fn few_accesses_are_told_in_a_period_and_bursts_go_on_in_the_next() {
        let bursts = Bursts::new();
        for period in 1..=u32::from(BURST) {
            bursts.begin();
            let told = (0..SHARED).filter(|page| bursts.used(*page) != Told::Not);
            assert_eq!(told.count() as u32, PERIOD);
            bursts.begin();
            let last = if period == u32::from(BURST).div_ceil(2) {
                Told::Last
            } else {
                Told::Goes
            };
            assert_eq!(bursts.used(0), last);
            if last == Told::Last {
                return;
            }
        }
        panic!("the burst went on for ever");
    }
}
