//! What page faults and ticks of isolated threads record: which thread writes which page, which
//! pages are private for that reason, and where threads were interrupted (SHERIFF, section 4). It is part of the control file ([`crate::isolation::Control`]); all zeroes are a
//! valid, empty state. Workers call it in their signal handlers. So nothing here allocates,
//! waits or makes system calls, and the only failure is that a table is full.

use crate::ring::{Ring, Space, space_words};
use crate::trial::Trial;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};

/// The most pages whose writers are remembered.
pub const TRACKED_PAGES: usize = 1 << 15;
/// The most pages that two threads have written.
pub const SHARED: usize = 256;
/// The most register states that wait for the tool to read them.
pub const MOMENTS: u64 = 1 << 12;
/// Words of the record of a register state: as [`crate::ring::SAMPLE_WORDS`].
pub const MOMENT_WORDS: usize = crate::ring::SAMPLE_WORDS;

/// The number of entries of the hash table that are probed for a page.
const PROBES: usize = 16;
const PAGE_BITS: u32 = 12;

/// Which pages are private.
pub mod mode {
    /// Only the named pages are private.
    pub const OFF: u32 = 0;
    /// Every page that two threads write is private after a trial, and moments are recorded.
    pub const DETECT: u32 = 1;
    /// Every page that two threads write is private after a trial if the tool decides so.
    pub const EAGER: u32 = 2;
}

/// The state of a page that two threads write.
pub mod page {
    /// The tool has not decided yet; the page is shared until then.
    pub const OPEN: u32 = 0;
    /// Each isolated thread has a private copy.
    pub const PRIVATE: u32 = 1;
    /// Two threads changed the same bytes while they were isolated: it is shared for good.
    pub const CONTENDED: u32 = 2;
    /// The tool decided that a private copy is not worth it: it is shared for good.
    pub const LEFT: u32 = 3;
    /// An isolated thread got on there only when it saw what others had written: it is shared for
    /// good.
    pub const AWAITED: u32 = 4;
    /// Isolated threads are watched as they use it, before it becomes private ([`crate::trial`]).
    pub const TRIAL: u32 = 5;
    /// In the trial two threads were seen to use the same bytes without synchronising in a way that ends
    /// their episodes: it is shared for good.
    pub const HANDED_OVER: u32 = 6;
    /// Private copies cost too much: it is shared for good.
    pub const COSTLY: u32 = 7;
}

/// The writers of a page.
#[derive(Debug, Default)]
#[repr(C)]
struct PageWriters {
    /// The page number plus one; 0 if the entry is not used.
    page: AtomicU64,
    /// The writers, packed.
    packed: AtomicU64,
}

/// A page that two threads write.
#[derive(Debug)]
#[repr(C)]
pub struct SharedPage {
    /// Its address.
    pub address: AtomicU64,
    /// See [`page`].
    pub state: AtomicU32,
    /// How often threads took a copy of it or committed one.
    pub work: AtomicU64,
    /// How its threads use it.
    pub trial: Trial,
}

/// What is known about a page's writers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writers {
    /// No other thread has written it, as far as is known.
    One,
    /// Several threads have written it; this is its index in [`Tracking::shared`].
    Several(usize),
}

/// The writers of a page, packed. One writer: the index of the thread's slot and the thread's
/// number. Several writers: the page's index in [`Tracking::shared`].
#[derive(Clone, Copy)]
struct PackedWriters(u64);

impl PackedWriters {
    const SEVERAL: u64 = 1 << 63;
    /// The page's index is not known yet, or the page has none.
    const NOWHERE: u64 = u32::MAX as u64;

    const fn one(slot: u32, thread: u32) -> Self {
        Self((slot as u64) << 32 | thread as u64)
    }

    const fn is_several(self) -> bool {
        self.0 & Self::SEVERAL != 0
    }
}

/// What page faults and ticks record; a part of the control file.
#[derive(Debug)]
#[repr(C)]
pub struct Tracking {
    /// See [`mode`]; written before the program starts.
    pub mode: AtomicU32,
    /// Writes are tracked in the first `sampled` of every `cycle` periods of a thread. A period
    /// is an interval between commits, or the rest of one at an episode's end.
    pub sampled: AtomicU32,
    /// See `sampled`.
    pub cycle: AtomicU32,
    /// Raised whenever the state of a page of `shared` changes.
    pub decided: AtomicU32,
    /// The number of first writes to a page that were caught.
    pub faults: AtomicU64,
    /// The number of pages for which the tables had no room.
    pub left_out: AtomicU64,
    /// The number of moments that were lost because the ring was full.
    pub lost: AtomicU64,
    /// The number of periods of all threads.
    pub periods: AtomicU64,
    /// The number of entries of `shared` in use.
    pub shared_count: AtomicU32,
    writers: [PageWriters; TRACKED_PAGES],
    /// Pages that two threads have written.
    pub shared: [SharedPage; SHARED],
    moments: Space<{ space_words(MOMENTS, MOMENT_WORDS) }>,
}

impl Tracking {
    /// The threads' registers at the moments at which they were interrupted for a commit.
    pub const fn moments(&self) -> Ring<'_, MOMENT_WORDS> {
        self.moments.ring(MOMENTS)
    }

    /// The pages that two threads write, with their indices in [`Self::shared`].
    pub fn shared_pages(&self) -> impl Iterator<Item = (usize, &SharedPage)> {
        let count = self.shared_count.load(SeqCst) as usize;
        self.shared
            .iter()
            .enumerate()
            .take(count)
            .filter(|(_, page)| page.address.load(Relaxed) != 0)
    }

    /// The addresses of the pages among these that are in this state ([`page`]).
    pub fn in_state(&self, state: u32) -> impl Iterator<Item = u64> {
        self.shared_pages()
            .filter(move |(_, page)| page.state.load(Relaxed) == state)
            .map(|(_, page)| page.address.load(Relaxed))
    }

    /// Records that a thread writes the page at `address`, and returns what is known about the
    /// page's writers. The thread is given by the index of its slot and its number. `lives`
    /// tells for such a thread whether it still exists: if a page's only writer has ended, the
    /// next writer is its only one.
    pub fn written(
        &self,
        address: u64,
        slot: u32,
        thread: u32,
        lives: impl Fn(u32, u32) -> bool,
    ) -> Writers {
        let Some(writers) = self.writers(address >> PAGE_BITS) else {
            self.left_out.fetch_add(1, Relaxed);
            return Writers::One;
        };
        let me = PackedWriters::one(slot, thread);
        let mut known = PackedWriters(writers.packed.load(SeqCst));
        loop {
            if known.is_several() {
                let index = known.0 & PackedWriters::NOWHERE;
                return if index == PackedWriters::NOWHERE {
                    Writers::One
                } else {
                    Writers::Several(index as usize)
                };
            }
            if known.0 == me.0 {
                return Writers::One;
            }
            let (other, number) = ((known.0 >> 32) as u32, known.0 as u32);
            let alone = known.0 == 0 || !lives(other, number);
            let next = if alone {
                me
            } else {
                PackedWriters(PackedWriters::SEVERAL | PackedWriters::NOWHERE)
            };
            match writers
                .packed
                .compare_exchange(known.0, next.0, SeqCst, SeqCst)
            {
                Ok(_) if alone => return Writers::One,
                Ok(_) => return self.add(writers, address),
                Err(now) => known = PackedWriters(now),
            }
        }
    }

    /// The entry of a page, which is added if it is new; `None` if there is no room.
    fn writers(&self, number: u64) -> Option<&PageWriters> {
        let key = number + 1;
        // Multiplicative hashing: neighbouring pages are often used together.
        let first = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize;
        for i in 0..PROBES {
            let writers = self.writers.get((first + i) % TRACKED_PAGES)?;
            let found = writers.page.load(SeqCst);
            if found == key {
                return Some(writers);
            }
            if found == 0 {
                match writers.page.compare_exchange(0, key, SeqCst, SeqCst) {
                    Ok(_) => return Some(writers),
                    Err(now) if now == key => return Some(writers),
                    Err(_) => {}
                }
            }
        }
        None
    }

    /// Gives a page with a second writer an entry in `shared`, if there is room.
    fn add(&self, writers: &PageWriters, address: u64) -> Writers {
        let index = self.shared_count.fetch_add(1, SeqCst) as usize;
        let Some(shared) = self.shared.get(index) else {
            self.shared_count.store(SHARED as u32, SeqCst);
            self.left_out.fetch_add(1, Relaxed);
            return Writers::One;
        };
        if self.mode.load(Relaxed) == mode::DETECT {
            shared.state.store(page::TRIAL, SeqCst);
        }
        shared.address.store(address, SeqCst);
        writers
            .packed
            .store(PackedWriters::SEVERAL | index as u64, SeqCst);
        self.decided.fetch_add(1, SeqCst);
        Writers::Several(index)
    }

    /// Ends the trial of the page at index `index` of `shared` with this state, if it is not over yet.
    pub fn end_trial(&self, index: usize, state: u32) {
        if let Some(page) = self.shared.get(index) {
            let now = &page.state;
            if now
                .compare_exchange(page::TRIAL, state, SeqCst, SeqCst)
                .is_ok()
            {
                self.decided.fetch_add(1, SeqCst);
            }
        }
    }

    /// Sets the state of the page at index `index` of `shared`.
    pub fn decide(&self, index: usize, state: u32) {
        if let Some(page) = self.shared.get(index) {
            page.state.store(state, SeqCst);
            self.decided.fetch_add(1, SeqCst);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn empty() -> Box<Tracking> {
        let layout = std::alloc::Layout::new::<Tracking>();
        // SAFETY: all fields are atomics, for which zeroes are valid, and the box frees with
        // the layout that the same allocator was given.
        unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
    }

    const ALL: fn(u32, u32) -> bool = |_, _| true;

    #[test]
    fn a_page_is_shared_only_from_its_second_thread_on() {
        let tracking = empty();
        tracking.mode.store(mode::DETECT, Relaxed);
        assert_eq!(tracking.written(0x7000, 0, 10, ALL), Writers::One);
        assert_eq!(tracking.written(0x7000, 0, 10, ALL), Writers::One);
        assert_eq!(tracking.written(0x8000, 1, 11, ALL), Writers::One);
        assert_eq!(tracking.written(0x7000, 1, 11, ALL), Writers::Several(0));
        assert_eq!(tracking.written(0x7000, 0, 10, ALL), Writers::Several(0));
        let pages: Vec<u64> = tracking
            .shared_pages()
            .map(|(_, p)| p.address.load(Relaxed))
            .collect();
        assert_eq!(pages, [0x7000]);
        let state = || tracking.shared[0].state.load(Relaxed);
        assert_eq!(state(), page::TRIAL);
        tracking.end_trial(0, page::HANDED_OVER);
        tracking.end_trial(0, page::PRIVATE);
        assert_eq!(state(), page::HANDED_OVER, "a trial ends once");
    }

    #[test]
    fn the_page_of_an_ended_thread_is_private_to_the_next_one() {
        let tracking = empty();
        tracking.written(0x7000, 0, 10, ALL);
        let gone = |slot: u32, thread: u32| (slot, thread) != (0, 10);
        assert_eq!(tracking.written(0x7000, 0, 12, gone), Writers::One);
        assert_eq!(tracking.written(0x7000, 1, 13, gone), Writers::Several(0));
    }

    #[test]
    fn when_the_tool_is_to_decide_a_page_is_open_until_then() {
        let tracking = empty();
        tracking.mode.store(mode::EAGER, Relaxed);
        tracking.written(0x7000, 0, 10, ALL);
        tracking.written(0x7000, 1, 11, ALL);
        assert_eq!(tracking.shared[0].state.load(Relaxed), page::OPEN);
        let before = tracking.decided.load(Relaxed);
        tracking.decide(0, page::LEFT);
        assert_eq!(tracking.shared[0].state.load(Relaxed), page::LEFT);
        assert!(tracking.decided.load(Relaxed) > before);
    }

    #[test]
    fn pages_beyond_the_table_are_counted_and_have_one_writer() {
        let tracking = empty();
        tracking.mode.store(mode::DETECT, Relaxed);
        for page in 1..=SHARED as u64 + 5 {
            tracking.written(page << 12, 0, 10, ALL);
            let expected = if page <= SHARED as u64 {
                Writers::Several(page as usize - 1)
            } else {
                Writers::One
            };
            assert_eq!(tracking.written(page << 12, 1, 11, ALL), expected);
        }
        assert_eq!(tracking.left_out.load(Relaxed), 5);
        assert_eq!(tracking.shared_pages().count(), SHARED);
        // A table cannot hold twice as many pages as it has entries.
        for page in 0..TRACKED_PAGES as u64 * 2 {
            tracking.written((page + 1_000_000) << 12, 0, 10, ALL);
        }
        assert!(tracking.left_out.load(Relaxed) >= TRACKED_PAGES as u64);
    }

    #[test]
    fn threads_that_meet_on_a_page_agree_on_its_place() {
        let tracking = empty();
        tracking.mode.store(mode::DETECT, Relaxed);
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let tracking = &tracking;
                scope.spawn(move || {
                    for page in 1..=100u64 {
                        tracking.written(page << 12, thread, 10 + thread, ALL);
                    }
                });
            }
        });
        let mut pages: Vec<u64> = tracking
            .shared_pages()
            .map(|(_, p)| p.address.load(Relaxed) >> 12)
            .collect();
        pages.sort_unstable();
        assert_eq!(pages, (1..=100).collect::<Vec<_>>());
    }
}
