//! The budget: what watching may take of one CPU, for the watcher itself and for what its interrupts take
//! from others. It fills with time, and each close look is paid from it. Pure but for the CPU times of
//! the own process.

use std::time::Instant;
use sunder_pipeline::{childrens_cpu_seconds, own_cpu_seconds};

/// CPU seconds that are there at the start, so that what is busy then is looked at soon.
const AT_FIRST: f64 = 3.0;
/// For so many seconds what is left is kept at most.
const KEPT: f64 = 300.0;
/// The share of the budget that interrupts may take.
const INTERRUPTS: f64 = 0.5;
/// The most samples a second on each CPU: not in step with what happens every ten milliseconds.
const MOST_HZ: f64 = 99.0;
/// The least: with fewer, a look of ten seconds shows nothing.
const LEAST_HZ: f64 = 9.0;

/// See the module's head.
#[derive(Debug)]
pub struct Spend {
    /// CPU seconds a second.
    share: f64,
    /// Nanoseconds that an interrupt takes.
    interrupt_ns: f64,
    left: f64,
    at: Instant,
    before: f64,
    /// A mean of the last minute or so.
    lately: Option<f64>,
}

impl Spend {
    /// A budget of so many percent of one CPU.
    pub fn new(percent: f64, interrupt_ns: f64) -> Self {
        Self {
            share: percent / 100.0,
            interrupt_ns,
            left: AT_FIRST,
            at: Instant::now(),
            before: own_seconds(),
            lately: None,
        }
    }

    /// The samples a second that the budget allows on each of so many CPUs.
    pub fn frequency(&self, cpus: usize) -> u32 {
        let each = self.interrupt_ns.max(1.0) / 1e9 * cpus.max(1) as f64;
        (self.share * INTERRUPTS / each).clamp(LEAST_HZ, MOST_HZ) as u32
    }

    /// CPU seconds that so many interrupts have taken from others.
    pub fn of_interrupts(&self, count: f64) -> f64 {
        count * self.interrupt_ns / 1e9
    }

    /// Accounts what was spent since the last call: `own` are our CPU seconds since the start, and
    /// `interrupts` is their count since then. Returns by how many CPU seconds the budget has grown.
    pub fn account(&mut self, own: f64, interrupts: f64) -> f64 {
        let seconds = self.at.elapsed().as_secs_f64();
        self.at = Instant::now();
        let spent = own + self.of_interrupts(interrupts);
        self.add(seconds, spent - self.before);
        self.before = spent;
        self.share * seconds
    }

    /// `spent` CPU seconds were spent in so many seconds.
    fn add(&mut self, seconds: f64, spent: f64) {
        if seconds <= 0.0 {
            return;
        }
        self.left = (self.left + self.share * seconds - spent).min(self.most());
        let now = spent / seconds;
        let weight = (seconds / 60.0).min(1.0);
        let before = self.lately.unwrap_or(now);
        self.lately = Some(before + (now - before) * weight);
    }

    /// CPU seconds that are left of the budget; less than none if it is overdrawn.
    pub fn left(&self) -> f64 {
        self.left
    }

    /// The most CPU seconds that can be saved.
    pub fn most(&self) -> f64 {
        self.share * KEPT + AT_FIRST
    }

    /// What was spent lately, in percent of one CPU.
    pub fn lately_percent(&self) -> f64 {
        self.lately.unwrap_or(0.0) * 100.0
    }
}

/// CPU seconds of this process and of those that named what was found and are gone.
pub fn own_seconds() -> f64 {
    own_cpu_seconds() + childrens_cpu_seconds()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interrupts_take_half_of_the_budget_at_most() {
        // 30 us each, 1 % of a CPU.
        let of = |cpus| Spend::new(1.0, 30_000.0).frequency(cpus);
        assert_eq!((of(1), of(2), of(8), of(64)), (99, 83, 20, 9));
        assert_eq!(Spend::new(1.0, 0.0).frequency(2), 99);
    }

    #[test]
    fn what_was_spent_has_to_be_saved_again() {
        let mut spend = Spend::new(1.0, 1000.0);
        assert!(spend.left() > 0.0);
        spend.add(1.0, AT_FIRST + 1.0);
        assert!(spend.left() <= 0.0);
        // A second takes a hundred to be saved.
        spend.add(90.0, 0.0);
        assert!(spend.left() <= 0.0);
        spend.add(20.0, 0.0);
        assert!(spend.left() > 0.0);
        spend.add(1e6, 0.0);
        assert_eq!(spend.left(), spend.most());
        assert_eq!(spend.most(), AT_FIRST + 3.0);
        spend.add(60.0, 0.6);
        assert!((spend.lately_percent() - 1.0).abs() < 1e-9);
    }
}
