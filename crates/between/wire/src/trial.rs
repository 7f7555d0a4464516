//! Whether a page that two threads write may become private. Before it does, isolated threads are watched
//! for bursts of accesses to it, one after the other. If two of them use the same bytes, and at least one
//! writes there, while the episodes of both last, they hand data over in a way that ends no episode: by
//! plain loads and stores. A private copy would delay such stores, and publish them in another order.
//!
//! Part of the control file, written by workers in their signal handlers: nothing here allocates, waits or
//! makes system calls. All zeroes are a trial that has not begun.

use core::sync::atomic::AtomicU64;
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// The latest uses that are remembered for a page.
const USES: usize = 128;
/// So many bursts, each by another thread than the one before, must pass without a conflict.
const TURNS: u32 = 4;

/// One access to a page in an episode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Use {
    /// Offset in the page of the first byte that was used.
    pub offset: u16,
    /// The index of the thread's slot.
    pub slot: u8,
    /// The thread's number of episodes before this one.
    pub episode: u32,
    /// Whether the access writes.
    pub writes: bool,
    /// When it happened (monotonic clock, ns).
    pub time: u64,
}

/// A use in memory: all but its time in one word, which is 0 if there is none.
#[derive(Debug)]
#[repr(C)]
struct Kept {
    packed: AtomicU64,
    time: AtomicU64,
}

impl Kept {
    const ANY: u64 = 1 << 63;

    const fn pack(one: &Use) -> u64 {
        Self::ANY
            | (one.writes as u64) << 56
            | (one.slot as u64) << 48
            | (one.episode as u64) << 16
            | one.offset as u64
    }

    /// The use, unless it is being replaced.
    fn get(&self) -> Option<Use> {
        let packed = self.packed.load(SeqCst);
        let time = self.time.load(SeqCst);
        let sound = packed & Self::ANY != 0 && self.packed.load(SeqCst) == packed;
        sound.then_some(Use {
            offset: packed as u16,
            slot: (packed >> 48) as u8,
            episode: (packed >> 16) as u32,
            writes: packed >> 56 & 1 != 0,
            time,
        })
    }
}

/// The trial of one page.
#[derive(Debug)]
#[repr(C)]
pub struct Trial {
    uses: [Kept; USES],
    next: AtomicU32,
    /// Bursts that were by another thread than the one before.
    turns: AtomicU32,
    /// The slot of the last burst's thread, plus one.
    last: AtomicU32,
}

impl Trial {
    /// An isolated thread uses the page; its episode began at `since`. `lasts` says whether the episode
    /// of a slot with such a number still lasts. Returns whether the use conflicts with one of another
    /// thread: of what that thread did before `since`, this one may have been told in any way.
    pub fn used(&self, one: &Use, since: u64, lasts: impl Fn(u8, u32) -> bool) -> bool {
        // Of two threads that come here at once, at least one sees the other's use.
        self.keep(one);
        self.uses.iter().filter_map(Kept::get).any(|other| {
            other.offset == one.offset
                && other.slot != one.slot
                && (other.writes || one.writes)
                && other.time > since
                && lasts(other.slot, other.episode)
        })
    }

    fn keep(&self, one: &Use) {
        let packed = Kept::pack(one);
        let known = self.uses.iter().find(|u| u.packed.load(SeqCst) == packed);
        let next = || self.next.fetch_add(1, SeqCst) as usize % USES;
        if let Some(place) = known.or_else(|| self.uses.get(next())) {
            place.packed.store(0, SeqCst);
            place.time.store(one.time, SeqCst);
            place.packed.store(packed, SeqCst);
        }
    }

    /// A burst of the thread in this slot is over. Returns whether there were enough.
    pub fn looked(&self, slot: u8) -> bool {
        let me = u32::from(slot) + 1;
        let before = self.last.swap(me, SeqCst);
        let new = before != 0 && before != me;
        self.turns.fetch_add(u32::from(new), SeqCst) + u32::from(new) >= TURNS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Trial> {
        let layout = std::alloc::Layout::new::<Trial>();
        // SAFETY: all fields are atomics, for which zeroes are valid, and the box frees with the layout
        // that the same allocator was given.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
    }

    const fn one(slot: u8, offset: u16, writes: bool, time: u64) -> Use {
        Use {
            offset,
            slot,
            episode: 300 + slot as u32,
            writes,
            time,
        }
    }

    const LAST: fn(u8, u32) -> bool = |slot, episode| episode == 300 + slot as u32;

    #[test]
    fn bytes_that_one_thread_writes_and_another_uses_conflict() {
        for (first, second, conflict) in [
            (true, false, true),
            (false, true, true),
            (true, true, true),
            (false, false, false),
        ] {
            let trial = empty();
            assert!(!trial.used(&one(0, 8, first, 20), 10, LAST));
            assert!(!trial.used(&one(1, 16, true, 21), 10, LAST), "beside it");
            assert!(!trial.used(&one(0, 8, first, 22), 10, LAST), "itself");
            assert_eq!(trial.used(&one(1, 8, second, 23), 10, LAST), conflict);
        }
    }

    #[test]
    fn what_an_ended_episode_or_an_earlier_one_did_does_not_count() {
        let trial = empty();
        assert!(!trial.used(&one(0, 8, true, 20), 10, LAST));
        assert!(
            !trial.used(&one(1, 8, true, 40), 30, LAST),
            "it began later"
        );
        assert!(!trial.used(&one(2, 8, true, 41), 10, |_, _| false), "ended");
        let again = Use {
            episode: 999,
            ..one(0, 24, true, 42)
        };
        assert!(!trial.used(&again, 10, LAST));
        assert!(
            !trial.used(&one(1, 24, true, 43), 30, LAST),
            "another episode"
        );
    }

    #[test]
    fn the_latest_uses_are_remembered() {
        let trial = empty();
        for offset in 0..USES as u16 + 10 {
            assert!(!trial.used(&one(0, offset, true, 20), 10, LAST));
        }
        assert!(trial.used(&one(1, 100, false, 30), 10, LAST));
        assert!(!trial.used(&one(1, 5, false, 30), 10, LAST), "forgotten");
    }

    #[test]
    fn threads_must_take_turns_until_a_page_has_passed() {
        let trial = empty();
        assert!(
            (0..100).all(|_| !trial.looked(0)),
            "one thread proves nothing"
        );
        let passed = [1, 1, 0, 2, 2, 0].map(|slot| trial.looked(slot));
        assert_eq!(passed, [false, false, false, false, false, true]);
    }
}
