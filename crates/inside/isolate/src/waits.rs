//! Finds pages on which a thread waits for what others write, by plain loads and stores: a producer and
//! a consumer with a ring between them, a flag. Isolated, such a thread gets on a little after each
//! commit, when it sees what others wrote, and then waits for the next one; a run of milliseconds
//! takes minutes. A thread that only shares a page falsely gets on without others.
//!
//! So now and then a tick commits without taking over what others wrote. A page to which the thread
//! wrote before, and does not write in the interval after such a tick, [`ENOUGH`] times in a row, is one
//! on which it waits. (A page that is written less than once in an interval is not worth a private
//! copy either.) All pages are withheld together, because what is seen on one may order another.
//!
//! Called by [`crate::tracking`], in the worker's signal handler. Knows no control file and makes no
//! system call.

use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicU8, AtomicU32};
use sunder_wire::tracking::SHARED;

/// One of so many ticks withholds what others wrote.
const EVERY: u32 = 4;
/// So many intervals in a row without a write must follow such ticks.
const ENOUGH: u8 = 3;

/// What the next commit of a page is about.
mod phase {
    /// Nothing: others' writes were and will be seen.
    pub const USUAL: u8 = 0;
    /// Others' writes are withheld after it.
    pub const WITHHOLDS: u8 = 1;
    /// Others' writes were withheld before it.
    pub const JUDGES: u8 = 2;
}

/// What is known of one thread's pages in an episode; in the worker's own memory.
pub struct Waits {
    ticks: AtomicU32,
    phase: AtomicU8,
    /// Whether the thread wrote to the page in the interval before others' writes were withheld.
    wrote: [AtomicBool; SHARED],
    /// The intervals in a row in which it did not get on.
    stuck: [AtomicU8; SHARED],
}

impl Waits {
    /// Nothing is known.
    pub const fn new() -> Self {
        Self {
            ticks: AtomicU32::new(0),
            phase: AtomicU8::new(phase::USUAL),
            wrote: [const { AtomicBool::new(false) }; SHARED],
            stuck: [const { AtomicU8::new(0) }; SHARED],
        }
    }

    /// A tick begins, before its commits. Returns whether they may take over what others wrote.
    pub fn tick(&self) -> bool {
        let number = self.ticks.fetch_add(1, Relaxed) + 1;
        let now = if self.phase.load(Relaxed) == phase::WITHHOLDS {
            phase::JUDGES
        } else if number.is_multiple_of(EVERY) {
            phase::WITHHOLDS
        } else {
            phase::USUAL
        };
        self.phase.store(now, Relaxed);
        now != phase::WITHHOLDS
    }

    /// The page at `index` of the shared pages was committed by a tick; `wrote` says that the thread had
    /// written to it. Returns whether the thread is now known to wait there.
    pub fn committed(&self, index: usize, wrote: bool) -> bool {
        let (Some(before), Some(stuck)) = (self.wrote.get(index), self.stuck.get(index)) else {
            return false;
        };
        match self.phase.load(Relaxed) {
            phase::WITHHOLDS => before.store(wrote, Relaxed),
            phase::JUDGES if wrote => stuck.store(0, Relaxed),
            phase::JUDGES if before.load(Relaxed) => {
                let times = stuck.load(Relaxed).saturating_add(1);
                stuck.store(times, Relaxed);
                return times >= ENOUGH;
            }
            _ => {}
        }
        false
    }

    /// The tick's commits are over. Commits that end an episode lie within an interval, of which
    /// nothing follows.
    pub fn ticked(&self) {
        if self.phase.load(Relaxed) == phase::JUDGES {
            self.phase.store(phase::USUAL, Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Plays `ticks` ticks of a thread that writes in an interval as `writes` says, which is told the
    /// interval's number and whether others' writes were seen before it. Returns at which tick the
    /// thread was known to wait.
    fn play(ticks: u32, mut writes: impl FnMut(u32, bool) -> bool) -> Option<u32> {
        let waits = Waits::new();
        let mut seen = true;
        (0..ticks).find(|tick| {
            let wrote = writes(*tick, seen);
            seen = waits.tick();
            let known = waits.committed(7, wrote);
            waits.ticked();
            known
        })
    }

    #[test]
    fn a_thread_that_gets_on_only_with_what_others_wrote_waits() {
        // Withheld at ticks 3, 7 and 11 from 0, and judged by the next one each.
        assert_eq!(play(100, |_, seen| seen), Some(12));
    }

    #[test]
    fn a_thread_that_gets_on_alone_does_not() {
        assert_eq!(play(10_000, |_, _| true), None);
        assert_eq!(play(10_000, |_, _| false), None);
        // It pauses at times, whatever it saw.
        assert_eq!(play(10_000, |tick, _| tick % 7 != 0), None);
    }

    #[test]
    fn intervals_in_which_it_got_on_start_the_count_anew() {
        let mut withheld = 0;
        let known = play(100, |_, seen| {
            withheld += u32::from(!seen);
            seen || withheld == 3
        });
        // The third of the intervals counts for nothing, so that three more are needed.
        assert_eq!(known, Some(24));
    }

    #[test]
    fn other_pages_and_ends_of_episodes_count_for_nothing() {
        let waits = Waits::new();
        for _ in 0..1000 {
            let seen = waits.tick();
            assert!(!waits.committed(SHARED, seen), "a page beyond the table");
            assert!(!waits.committed(1, true));
            waits.ticked();
            // The end's commit is no tick's.
            assert!(!waits.committed(2, false));
        }
    }
}
