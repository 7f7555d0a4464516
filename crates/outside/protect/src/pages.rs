//! The table of wanted pages in the control file. Workers read it when they begin, so it must
//! change only while no thread is isolated. Called by `keeper` and, through it, by `choose`,
//! `target` and `eager`.

use super::shared::Shared;
use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use sunder_access::PAGE;
use sunder_wire::isolation::{BESIDE, COSTLY, GONE, LEFT_OUT, PAGES, PrivatePage, state};
use sunder_wire::tracking::page;

/// Largest object that is isolated, in bytes. Every page of it is compared at each commit, and not
/// all of a larger one is contended.
pub const LARGEST: u64 = 16 * PAGE;

/// How many times a page may become private again after bytes beside the named ones changed on it: each
/// time because more of its bytes are named.
const MOST_AGAIN: u32 = 8;

/// Bytes that are to be isolated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRequest {
    /// Address of the first byte.
    pub start: u64,
    /// Number of bytes.
    pub size: u64,
    /// For tests: all other bytes on their pages are meant too.
    pub whole_pages: bool,
    /// The program has mapped them with `MAP_SHARED`, so that they need not be made sharable.
    pub common: bool,
    /// Index in the control file's table of blocks, if they can be freed or unmapped.
    pub block: Option<usize>,
}

/// Bytes that were asked for and are not in the table yet.
#[derive(Debug, Default)]
pub struct Pages {
    requested: Vec<PageRequest>,
    /// How many times pages have become private again ([`MOST_AGAIN`]), by their addresses.
    again: HashMap<u64, u32>,
    /// The library was told to isolate no thread.
    holds: bool,
}

impl Pages {
    /// Asks for bytes; does nothing if they are in the table or were given up.
    pub fn request(&mut self, shared: &Shared, request: PageRequest) {
        if request.size == 0
            || request.size > LARGEST
            || request.start.checked_add(request.size).is_none()
        {
            return;
        }
        if !self.requested.contains(&request) && !self.is_known(shared, &request) {
            self.requested.push(request);
        }
    }

    /// Whether the table has a page that is still wanted.
    pub fn any(shared: &Shared) -> bool {
        let mut pages = known(shared);
        pages.any(|page| page.given_up.load(Relaxed) == 0)
    }

    /// Gives up the pages of these bytes, `why` as in `sunder_wire::isolation`. Threads share them again at
    /// their next commit.
    pub fn give_up(shared: &Shared, start: u64, bytes: u64, why: u32) {
        let end = start.saturating_add(bytes);
        let over = |page: &&PrivatePage| {
            let at = page.address.load(Relaxed);
            at < end && start < at.saturating_add(PAGE)
        };
        for page in known(shared).filter(over) {
            page.given_up.store(why, SeqCst);
        }
    }

    /// Gives up all pages of the table but those that `keep` says. To be called while no thread is
    /// isolated.
    pub fn keep_only(shared: &Shared, mut keep: impl FnMut(u64) -> bool) {
        for page in known(shared).filter(|page| page.given_up.load(Relaxed) == 0) {
            if !keep(page.address.load(Relaxed)) {
                page.given_up.store(LEFT_OUT, SeqCst);
            }
        }
    }

    /// Gives up the private pages, named ones and those that faults found, with which threads worked as often
    /// as on average or more often. Threads share them again at their next commit. Returns how many there
    /// were.
    pub fn give_up_costly(shared: &Shared) -> usize {
        let named = || known(shared).filter(|page| page.given_up.load(Relaxed) == 0);
        let tracking = &shared.tracking;
        let found = || {
            let pages = tracking.shared_pages();
            pages.filter(|(_, found)| found.state.load(Relaxed) == page::PRIVATE)
        };
        let work = named()
            .map(|page| page.work.load(Relaxed))
            .chain(found().map(|(_, page)| page.work.load(Relaxed)));
        let work: Vec<u64> = work.filter(|times| *times > 0).collect();
        let sum = work
            .iter()
            .fold(0u64, |sum, times| sum.saturating_add(*times));
        let Some(average) = sum.checked_div(work.len() as u64) else {
            return 0;
        };
        let costs = |times: &AtomicU64| times.load(Relaxed) >= average.max(1);
        let mut given_up = 0;
        for page in named().filter(|page| costs(&page.work)) {
            page.given_up.store(COSTLY, SeqCst);
            given_up += 1;
        }
        for (index, _) in found().filter(|(_, page)| costs(&page.work)) {
            tracking.decide(index, page::COSTLY);
            given_up += 1;
        }
        given_up
    }

    /// Whether a wanted page lies in memory that is not sharable yet.
    pub fn any_new(shared: &Shared) -> bool {
        let count = shared.range_count.load(SeqCst) as usize;
        let ranges = || shared.ranges.iter().take(count);
        known(shared).any(|page| {
            let at = page.address.load(Relaxed);
            let has =
                |[from, to]: &[AtomicU64; 2]| (from.load(Relaxed)..to.load(Relaxed)).contains(&at);
            let private = page.common.load(Relaxed) == 0;
            page.given_up.load(Relaxed) == 0 && private && !ranges().any(has)
        })
    }

    /// Enters what was asked for into the table as soon as no thread is isolated. False if one is;
    /// then no thread may be sent meanwhile.
    pub fn settle(&mut self, shared: &Shared) -> bool {
        if self.requested.is_empty() {
            return true;
        }
        if shared.conversions.load(SeqCst) > 0 {
            if !self.holds {
                self.holds = true;
                // A thread that enters an episode from here on sees this and becomes native again.
                shared.held.fetch_add(1, SeqCst);
            }
            let mut away = false;
            for slot in &shared.slots {
                if matches!(
                    slot.state.load(SeqCst),
                    state::ENTERING | state::ISOLATED | state::RETURNING
                ) {
                    away = true;
                    // The parked thread sees this at its next commit.
                    slot.recall.store(1, SeqCst);
                }
            }
            if away {
                return false;
            }
        }
        for request in std::mem::take(&mut self.requested) {
            self.write(shared, &request);
        }
        if std::mem::take(&mut self.holds) {
            shared.held.fetch_sub(1, SeqCst);
        }
        true
    }
}

fn known(shared: &Shared) -> impl Iterator<Item = &PrivatePage> {
    let count = shared.page_count.load(Relaxed) as usize;
    shared.pages.iter().take(count)
}

/// The pages that bytes lie on: address, and offsets of the first and last wanted byte.
fn pages_of(request: &PageRequest) -> impl Iterator<Item = (u64, u64, u64)> {
    let (start, end, whole) = (
        request.start,
        request.start + request.size,
        request.whole_pages,
    );
    let pages = (start & !(PAGE - 1)..end).step_by(PAGE as usize);
    pages.map(move |page| {
        if whole {
            (page, 0, PAGE - 1)
        } else {
            let last = (end - 1 - page).min(PAGE - 1);
            (page, start.saturating_sub(page), last)
        }
    })
}

/// Whether a page of the table has these bytes, from the first to the last one.
fn has(page: &PrivatePage, [first, last]: [u64; 2]) -> bool {
    let has = |byte: u64| {
        let word = page.bytes.get((byte / 64) as usize);
        word.is_some_and(|bits| bits.load(Relaxed) >> (byte % 64) & 1 != 0)
    };
    (first..=last).all(has)
}

impl Pages {
    /// Whether the table would not change: each page has the bytes, or was given up for good.
    fn is_known(&self, shared: &Shared, request: &PageRequest) -> bool {
        pages_of(request).all(|(page, first, last)| {
            let mut same = known(shared).filter(|p| p.address.load(Relaxed) == page);
            same.any(|p| match p.given_up.load(Relaxed) {
                0 => has(p, [first, last]),
                GONE => false,
                BESIDE => !self.may_again(p, [first, last]),
                _ => true,
            })
        })
    }

    /// Whether a page on which other bytes changed than those that were named becomes private again
    /// as these are named too: they may have been the ones.
    fn may_again(&self, page: &PrivatePage, bytes: [u64; 2]) -> bool {
        let times = self.again.get(&page.address.load(Relaxed)).copied();
        times.unwrap_or(0) < MOST_AGAIN && !has(page, bytes)
    }

    /// Enters the pages of bytes into the table. The entry of a page whose object was freed is used
    /// again.
    fn write(&mut self, shared: &Shared, request: &PageRequest) {
        let mut written = Vec::new();
        for (page, first, last) in pages_of(request) {
            let count = shared.page_count.load(Relaxed) as usize;
            let place = known(shared).position(|p| p.address.load(Relaxed) == page);
            let gone = || known(shared).position(|p| p.given_up.load(Relaxed) == GONE);
            let place = place.or_else(gone).unwrap_or(count);
            let Some(wanted) = shared.pages.get(place).filter(|_| place < PAGES) else {
                // The table is full. Pages that were entered are still checked below.
                break;
            };
            let given_up = wanted.given_up.load(Relaxed);
            if given_up == GONE {
                wanted.bytes.iter().for_each(|bits| bits.store(0, Relaxed));
                wanted.address.store(page, Relaxed);
                wanted.work.store(0, Relaxed);
                wanted.given_up.store(0, SeqCst);
            }
            if given_up == BESIDE && self.may_again(wanted, [first, last]) {
                *self.again.entry(page).or_default() += 1;
                wanted.given_up.store(0, SeqCst);
            }
            wanted.common.store(request.common.into(), Relaxed);
            for byte in first..=last {
                if let Some(bits) = wanted.bytes.get((byte / 64) as usize) {
                    bits.fetch_or(1 << (byte % 64), Relaxed);
                }
            }
            if place == count {
                wanted.address.store(page, Relaxed);
                shared.page_count.store(count as u32 + 1, SeqCst);
            }
            written.push(wanted);
        }
        // When a block is freed, the library takes it out of the table of blocks first and gives up
        // its pages then. So a block that is still in that table will give up these pages; for a
        // block that is not, they are given up here.
        let block = request.block.and_then(|at| shared.blocks.get(at));
        if block.is_some_and(|block| block.address.load(SeqCst) != request.start) {
            for wanted in written {
                wanted.given_up.store(GONE, SeqCst);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(start: u64, size: u64) -> PageRequest {
        PageRequest {
            start,
            size,
            whole_pages: false,
            common: false,
            block: None,
        }
    }

    /// The pages in the table: address, reason for giving up, number of wanted bytes.
    fn table(shared: &Shared) -> Vec<(u64, u32, u32)> {
        let bytes = |p: &PrivatePage| p.bytes.iter().map(|b| b.load(Relaxed).count_ones()).sum();
        known(shared)
            .map(|p| (p.address.load(Relaxed), p.given_up.load(Relaxed), bytes(p)))
            .collect()
    }

    #[test]
    fn bytes_take_their_pages_and_no_more() {
        let shared = Shared::new().expect("memory files exist");
        let mut pages = Pages::default();
        pages.request(&shared, request(0x10_0ff0, 32));
        pages.request(&shared, request(0x10_1100, 8));
        assert!(!Pages::any(&shared), "not before it is settled");
        assert!(pages.settle(&shared));
        assert_eq!(table(&shared), [(0x10_0000, 0, 16), (0x10_1000, 0, 24)]);
        // Bytes that are in the table change nothing, nor do bytes of a page that was given up.
        shared.pages[1].given_up.store(COSTLY, Relaxed);
        pages.request(&shared, request(0x10_0ff0, 16));
        pages.request(&shared, request(0x10_1200, 8));
        pages.request(&shared, request(0x20_0000, LARGEST + 1));
        assert!(pages.requested.is_empty());
    }

    /// Changes beside the named bytes give a page up. If bytes are named later that were not, they may
    /// have been the ones; but not again and again.
    #[test]
    fn a_page_is_private_again_when_more_of_it_is_named() {
        let shared = Shared::new().expect("memory files exist");
        let mut pages = Pages::default();
        let mut ask = |start: u64| {
            pages.request(&shared, request(start, 64));
            assert!(pages.settle(&shared));
        };
        ask(0x10_0000);
        for times in 1..=MOST_AGAIN {
            shared.pages[0].given_up.store(BESIDE, Relaxed);
            ask(0x10_0000);
            assert_eq!(table(&shared)[0].1, BESIDE, "nothing is new");
            ask(0x10_0000 + 64 * u64::from(times));
            assert_eq!(table(&shared), [(0x10_0000, 0, 64 * (times + 1))]);
        }
        shared.pages[0].given_up.store(BESIDE, Relaxed);
        ask(0x10_0f00);
        assert_eq!(table(&shared)[0].1, BESIDE);
    }

    #[test]
    fn the_table_does_not_change_while_a_thread_is_isolated() {
        let shared = Shared::new().expect("memory files exist");
        let mut pages = Pages::default();
        shared.conversions.store(1, Relaxed);
        shared.slots[3].state.store(state::ISOLATED, Relaxed);
        pages.request(&shared, request(0x10_0000, 8));
        assert!(!pages.settle(&shared) && !pages.settle(&shared));
        assert_eq!(table(&shared), []);
        assert_eq!(shared.slots[3].recall.load(Relaxed), 1);
        assert_eq!(
            shared.held.load(Relaxed),
            1,
            "once, however often requested"
        );
        shared.slots[3].state.store(state::HOME, Relaxed);
        assert!(pages.settle(&shared));
        assert_eq!(table(&shared), [(0x10_0000, 0, 8)]);
        assert_eq!(shared.held.load(Relaxed), 0);
    }

    #[test]
    fn a_freed_block_is_not_wanted_and_its_page_is_free_for_others() {
        let shared = Shared::new().expect("memory files exist");
        let mut pages = Pages::default();
        shared.blocks[2].address.store(0x10_0000, Relaxed);
        let block = |start| PageRequest {
            block: Some(2),
            ..request(start, 64)
        };
        pages.request(&shared, block(0x10_0000));
        assert!(pages.settle(&shared));
        assert_eq!(table(&shared), [(0x10_0000, 0, 64)]);
        shared.blocks[2].address.store(1, Relaxed);
        pages.request(&shared, block(0x30_0000));
        assert!(pages.settle(&shared));
        assert_eq!(table(&shared), [(0x10_0000, 0, 64), (0x30_0000, GONE, 64)]);
        pages.request(&shared, request(0x50_0000, 8));
        assert!(pages.settle(&shared));
        assert_eq!(table(&shared), [(0x10_0000, 0, 64), (0x50_0000, 0, 8)]);
    }

    #[test]
    fn only_the_pages_of_what_is_gone_are_given_up() {
        let shared = Shared::new().expect("memory files exist");
        let mut pages = Pages::default();
        for page in 0..4 {
            pages.request(&shared, request(0x10_0000 + page * PAGE, 64));
        }
        assert!(pages.settle(&shared));
        Pages::give_up(&shared, 0x10_1ff0, 32, GONE);
        let given: Vec<u32> = table(&shared).iter().map(|page| page.1).collect();
        assert_eq!(given, [0, GONE, GONE, 0]);
        Pages::keep_only(&shared, |page| page != 0x10_3000);
        let given: Vec<u32> = table(&shared).iter().map(|page| page.1).collect();
        assert_eq!(given, [0, GONE, GONE, LEFT_OUT]);
    }

    #[test]
    fn pages_with_more_work_than_on_average_are_given_up() {
        let shared = Shared::new().expect("memory files exist");
        assert_eq!(Pages::give_up_costly(&shared), 0, "there are none");
        let mut pages = Pages::default();
        for page in 0..3 {
            pages.request(&shared, request(0x10_0000 + page * PAGE, 64));
        }
        assert!(pages.settle(&shared));
        let found = &shared.tracking;
        for (at, page) in found.shared.iter().take(2).enumerate() {
            page.address.store(0x20_0000 + at as u64 * PAGE, SeqCst);
            page.state.store(page::PRIVATE, SeqCst);
        }
        found.shared_count.store(2, SeqCst);
        assert_eq!(Pages::give_up_costly(&shared), 0, "nobody worked on any");
        for (page, times) in shared.pages.iter().zip([1, 30, 0]) {
            page.work.store(times, Relaxed);
        }
        for (page, times) in found.shared.iter().zip([50, 7]) {
            page.work.store(times, Relaxed);
        }
        assert_eq!(Pages::give_up_costly(&shared), 2);
        let given: Vec<u32> = table(&shared).iter().map(|page| page.1).collect();
        assert_eq!(given, [0, COSTLY, 0]);
        let state = |at: usize| found.shared[at].state.load(SeqCst);
        assert_eq!([state(0), state(1)], [page::COSTLY, page::PRIVATE]);
        assert_eq!(Pages::give_up_costly(&shared), 1, "the next ones");
    }

    #[test]
    fn a_freed_block_is_not_wanted_in_a_full_table_either() {
        let shared = Shared::new().expect("memory files exist");
        let mut pages = Pages::default();
        for page in 0..PAGES as u64 - 1 {
            pages.request(&shared, request(0x10_0000 + page * PAGE, 8));
        }
        // Only the first of the block's two pages fits into the table.
        let block = PageRequest {
            block: Some(2),
            ..request(0x50_0000, 2 * PAGE)
        };
        pages.request(&shared, block);
        assert!(pages.settle(&shared));
        let last = table(&shared).pop();
        assert_eq!(last, Some((0x50_0000, GONE, PAGE as u32)));
    }
}
