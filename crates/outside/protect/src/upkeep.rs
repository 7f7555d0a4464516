//! When isolation costs too much: the general rule, whatever the cause. The library inside the program
//! measures what isolation takes from each thread ([`sunder_wire::isolation::Upkeep`]); here the shares of
//! windows are judged, of each thread and of all together. Called by `keeper`, which acts on the answer.

use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use sunder_wire::isolation::{SLOTS, Slot};

/// The most that isolation may take, in percent of the threads' CPU time. If it takes more, a program may
/// well be half as fast: what is lost by cold caches and page tables comes on top of it and can't be seen.
pub const MOST_PERCENT: u64 = 25;
/// The CPU time of one window, in ns.
const WINDOW: u64 = 100_000_000;

/// Figures of [`sunder_wire::isolation::Upkeep`], of a window or since the beginning.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    all: u64,
    taken: u64,
    pages: u64,
}

impl Spent {
    fn of(slot: &Slot) -> Self {
        let upkeep = &slot.upkeep;
        Self {
            all: upkeep.all.load(Relaxed),
            taken: upkeep.taken.load(Relaxed),
            pages: upkeep.pages.load(Relaxed),
        }
    }

    /// What all threads have spent so far.
    pub fn of_all(slots: &[Slot; SLOTS]) -> Self {
        let mut sum = Self::default();
        slots.iter().for_each(|slot| sum.add(Self::of(slot)));
        sum
    }

    /// In seconds, for tools.
    pub fn seconds(self) -> serde_json::Value {
        let seconds = |ns: u64| ns as f64 / 1e9;
        serde_json::json!({
            "all": seconds(self.all),
            "isolating": seconds(self.taken),
            "private_pages": seconds(self.pages),
        })
    }

    /// What was added since. The program can write any number there: then nothing was.
    const fn since(self, before: Self) -> Self {
        Self {
            all: self.all.saturating_sub(before.all),
            taken: self.taken.saturating_sub(before.taken),
            pages: self.pages.saturating_sub(before.pages),
        }
    }

    const fn add(&mut self, more: Self) {
        self.all = self.all.saturating_add(more.all);
        self.taken = self.taken.saturating_add(more.taken);
        self.pages = self.pages.saturating_add(more.pages);
    }
}

/// What is to be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing.
    Goes,
    /// The pages that cost most: private pages took most of what isolation took.
    Pages(u64),
    /// Isolation, which took so many percent of the time.
    All(u64),
}

/// A window of CPU time.
#[derive(Clone, Copy, Debug, Default)]
struct Window(Spent);

impl Window {
    /// Adds what was spent; the verdict if the window is over, which begins anew then.
    fn add(&mut self, new: Spent) -> Verdict {
        self.0.add(new);
        if self.0.all < WINDOW {
            return Verdict::Goes;
        }
        let Spent { all, taken, pages } = std::mem::take(&mut self.0);
        let percent = (u128::from(taken) * 100 / u128::from(all)).min(100) as u64;
        if percent <= MOST_PERCENT {
            Verdict::Goes
        } else if pages >= taken / 2 {
            Verdict::Pages(percent)
        } else {
            Verdict::All(percent)
        }
    }
}

/// What isolation has taken so far, and the windows that are not over.
#[derive(Debug)]
pub struct Meter {
    before: [Spent; SLOTS],
    threads: [Window; SLOTS],
    program: Window,
}

impl Default for Meter {
    fn default() -> Self {
        Self {
            before: [Spent::default(); SLOTS],
            threads: [Window::default(); SLOTS],
            program: Window::default(),
        }
    }
}

impl Meter {
    /// Takes what was spent since the last call. `dear` is called for each thread of which isolation takes too
    /// much, with its slot's index. Returns the verdict on all threads together.
    pub fn weigh(&mut self, slots: &[Slot; SLOTS], mut dear: impl FnMut(usize)) -> Verdict {
        let mut all = Spent::default();
        let known = self.before.iter_mut().zip(&mut self.threads);
        for (index, (slot, (before, window))) in slots.iter().zip(known).enumerate() {
            let now = Spent::of(slot);
            let new = now.since(std::mem::replace(before, now));
            if new == Spent::default() {
                continue;
            }
            all.add(new);
            if matches!(window.add(new), Verdict::All(_)) {
                dear(index);
            }
        }
        self.program.add(all)
    }

    /// Another thread has this slot from now on.
    pub fn begins(&mut self, slot: usize) {
        if let Some(window) = self.threads.get_mut(slot) {
            *window = Window::default();
        }
    }
}

/// What isolation takes, and what has become of it.
#[derive(Debug, Default)]
pub struct Costs {
    /// The windows.
    pub meter: Meter,
    /// How often it took too much.
    pub times: usize,
    /// The percentage of the last time.
    pub percent: u64,
    /// All threads are native until then.
    pub until: Option<Instant>,
}

impl Costs {
    /// Another thread has this slot from now on.
    pub fn begins(&mut self, slot: usize) {
        self.meter.begins(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    const fn spent(all: u64, taken: u64, pages: u64) -> Spent {
        Spent {
            all: all * MS,
            taken: taken * MS,
            pages: pages * MS,
        }
    }

    #[test]
    fn a_window_is_judged_when_it_is_over() {
        let mut window = Window::default();
        assert_eq!(window.add(spent(60, 60, 0)), Verdict::Goes, "too early");
        assert_eq!(window.add(spent(60, 0, 0)), Verdict::All(50));
        assert_eq!(window.add(spent(100, 25, 0)), Verdict::Goes, "just as much");
        assert_eq!(window.add(spent(100, 26, 12)), Verdict::All(26));
        assert_eq!(window.add(spent(100, 26, 13)), Verdict::Pages(26));
        assert_eq!(window.add(spent(99, 99, 99)), Verdict::Goes, "a new one");
    }

    /// The program may write any numbers into the control file.
    #[test]
    fn wrong_numbers_give_a_verdict() {
        let most = Spent {
            all: u64::MAX,
            taken: u64::MAX,
            pages: u64::MAX,
        };
        let mut window = Window::default();
        assert_eq!(window.add(spent(99, 0, 0)), Verdict::Goes);
        assert_eq!(window.add(most), Verdict::Pages(100));
        let more = Spent {
            all: 100 * MS,
            taken: u64::MAX,
            pages: 0,
        };
        assert_eq!(window.add(more), Verdict::All(100));
        assert_eq!(spent(1, 1, 1).since(most), Spent::default());
    }

    fn spend(slot: &Slot, more: Spent) {
        slot.upkeep.all.fetch_add(more.all, Relaxed);
        slot.upkeep.taken.fetch_add(more.taken, Relaxed);
        slot.upkeep.pages.fetch_add(more.pages, Relaxed);
    }

    fn slots() -> [Slot; SLOTS] {
        std::array::from_fn(|_| Slot::default())
    }

    #[test]
    fn threads_are_judged_alone_and_together() {
        let (slots, mut meter) = (slots(), Meter::default());
        let mut weigh = || {
            let mut dear = Vec::new();
            let verdict = meter.weigh(&slots, |slot| dear.push(slot));
            (dear, verdict)
        };
        for slot in &slots[..8] {
            spend(slot, spent(90, 0, 0));
        }
        assert_eq!(weigh(), (vec![], Verdict::Goes));
        // One thread pays for all.
        spend(&slots[3], spent(110, 90, 0));
        assert_eq!(weigh(), (vec![3], Verdict::All(81)));
        assert_eq!(weigh(), (vec![], Verdict::Goes), "nothing is counted twice");
        for slot in &slots[..8] {
            spend(slot, spent(10, 0, 0));
        }
        spend(&slots[5], spent(110, 90, 0));
        assert_eq!(weigh(), (vec![5], Verdict::All(47)));
    }

    /// Threads that come and go would never fill a window of their own.
    #[test]
    fn short_threads_are_judged_together() {
        let (slots, mut meter) = (slots(), Meter::default());
        for round in 0..4 {
            for slot in &slots[..2] {
                spend(slot, spent(20, 12, 0));
            }
            let verdict = meter.weigh(&slots, |slot| panic!("{slot}"));
            meter.begins(0);
            meter.begins(1);
            let expected = [
                Verdict::Goes,
                Verdict::Goes,
                Verdict::All(60),
                Verdict::Goes,
            ];
            assert_eq!(verdict, expected[round]);
        }
    }
}
