//! What the replay of some buckets counts of pages that moved, as it is in a part. Nothing has a name
//! yet: only the merge reads debug information. So accesses are counted for the call stack of their
//! block, or for their address if no block was live there, and the merge adds up what is one object.
//! All counts are of single pages, and a page is in one bucket, so parts are joined side by side.
//!
//! Filled by `counting`, which a replay of a bucket calls; [`named`] makes of it what the findings on
//! pages of any replay are made of.

mod counting;
mod named;

pub use counting::PageCounting;
pub use named::named;

use crate::simulate::pages::{CostlyPage, costliest};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use sunder_access::Kind;
use sunder_findings::Simulated;
use sunder_tables::{About, Allocation};

/// What an access is counted for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Place {
    /// The live block there, by the number of its call stack.
    Stack(u32),
    /// An address in no live block, and how many threads had started by then: what is known of
    /// stacks, and so the name of the address, may change with each.
    Outside(u64, u32),
}

/// A place, and the first access to it in the order of the whole trace.
type FirstPlace = (Place, i64);
/// A page, the number of a place, the first access, and the counts in the order of [`counts_of`].
type Share = (u64, u32, i64, [u64; COUNTS]);
/// The number of a place, instruction, kind, thread, the first access, and how many there were.
type Site = (u32, u64, u8, u32, i64, u64);
/// A page, the places that were accessed and written, and misses by true and by false sharing.
type Pair = (u64, u32, u32, u64, u64);
/// The number of a site, the place that was written, and misses by true and by false sharing.
type Missed = (u32, u32, u64, u64);
/// The number of a site, the place that had been accessed in copies that it destroyed, and their number.
type Destroyed = (u32, u32, u64);
/// The number of a share, the piece of the page, the thread, and its uses.
type UsesOf = (u32, u16, u32, [u64; 4]);

const COUNTS: usize = 8;

/// The kinds of accesses, by their numbers in a part.
const KINDS: [Kind; 4] = [Kind::Read, Kind::Write, Kind::Update, Kind::Atomic];

/// The counts of the pages of some buckets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pages {
    places: Vec<FirstPlace>,
    shares: Vec<Share>,
    sites: Vec<Site>,
    pairs: Vec<Pair>,
    missed: Vec<Missed>,
    destroyed: Vec<Destroyed>,
    /// The costliest pages. Those of the whole trace are among them.
    costliest: Vec<CostlyPage>,
    /// The accesses to the pieces of these pages.
    uses: Vec<UsesOf>,
    /// All blocks of the trace by call stack, in the part that has bucket 0.
    callers: BTreeMap<u32, Caller>,
}

/// The blocks of one call stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Caller {
    /// The place of the first allocation in the order of the trace.
    first: i64,
    /// The first block: first byte, requested bytes, and the thread by its number in results.
    address: u64,
    size: u64,
    thread: u32,
    /// The number of blocks.
    blocks: u64,
    /// Whether all have the size of the first.
    same_size: bool,
    /// Whether all were allocated by the thread of the first.
    same_thread: bool,
}

impl Caller {
    fn of(row: &Allocation, thread: u32) -> Self {
        Self {
            first: row.allocated.0,
            address: row.address,
            size: row.size,
            thread,
            blocks: 0,
            same_size: true,
            same_thread: true,
        }
    }

    /// Adds a block, which may be the first one.
    fn add(&mut self, row: &Allocation, thread: u32) {
        if row.allocated.0 < self.first {
            (self.first, self.address) = (row.allocated.0, row.address);
            self.same_size &= self.size == row.size;
            self.same_thread &= self.thread == thread;
            (self.size, self.thread) = (row.size, thread);
        }
        self.blocks += 1;
        self.same_size &= self.size == row.size;
        self.same_thread &= self.thread == thread;
    }
}

impl Pages {
    /// Counts `row`, a block of `trace`, for its call stack.
    pub fn add_block(&mut self, row: &Allocation, trace: &About) {
        let thread = trace.thread(row.thread).0;
        let caller = self.callers.entry(row.site);
        let caller = caller.or_insert_with(|| Caller::of(row, thread));
        caller.add(row, thread);
    }

    /// The call stacks that anything here names.
    pub fn stacks(&self) -> impl Iterator<Item = u32> {
        let of_place = |(place, _): &FirstPlace| match place {
            Place::Stack(stack) => Some(*stack),
            Place::Outside(..) => None,
        };
        let of_places = self.places.iter().filter_map(of_place);
        of_places.chain(self.callers.keys().copied())
    }

    /// Adds the counts of other pages.
    pub fn join(&mut self, other: Self) {
        let places = self.places.len() as u32;
        let shares = self.shares.len() as u32;
        let sites = self.sites.len() as u32;
        self.places.extend(other.places);
        self.shares.extend(
            other
                .shares
                .into_iter()
                .map(|(page, place, first, counts)| (page, place + places, first, counts)),
        );
        self.sites.extend(other.sites.into_iter().map(
            |(place, instruction, kind, thread, first, accesses)| {
                (place + places, instruction, kind, thread, first, accesses)
            },
        ));
        self.pairs.extend(
            other
                .pairs
                .into_iter()
                .map(|(page, asked, written, truly, falsely)| {
                    (page, asked + places, written + places, truly, falsely)
                }),
        );
        self.missed.extend(
            other
                .missed
                .into_iter()
                .map(|(site, written, truly, falsely)| {
                    (site + sites, written + places, truly, falsely)
                }),
        );
        self.destroyed.extend(
            other
                .destroyed
                .into_iter()
                .map(|(site, victim, copies)| (site + sites, victim + places, copies)),
        );
        self.uses.extend(
            other
                .uses
                .into_iter()
                .map(|(share, piece, thread, uses)| (share + shares, piece, thread, uses)),
        );
        let both = std::mem::take(&mut self.costliest);
        self.costliest = costliest(both.into_iter().chain(other.costliest));
        self.callers.extend(other.callers);
    }

    /// What is wrong with numbers that were read from a file, as the end of a sentence.
    ///
    /// # Errors
    /// If a number is none that a replay of a bucket writes.
    pub fn check(&self) -> Result<(), &'static str> {
        let place = |place: &u32| (*place as usize) < self.places.len();
        let site = |site: &u32| (*site as usize) < self.sites.len();
        let known = self.shares.iter().all(|(_, of, ..)| place(of))
            && self
                .sites
                .iter()
                .all(|(of, _, kind, ..)| place(of) && (*kind as usize) < KINDS.len())
            && self
                .pairs
                .iter()
                .all(|(_, asked, written, ..)| place(asked) && place(written))
            && self
                .missed
                .iter()
                .all(|(of, written, ..)| site(of) && place(written))
            && self
                .destroyed
                .iter()
                .all(|(of, victim, _)| site(of) && place(victim))
            && self
                .uses
                .iter()
                .all(|(share, ..)| (*share as usize) < self.shares.len());
        if !known {
            return Err("it names a part of a page that it does not have");
        }
        let spans = self.callers.values();
        if !spans
            .map(|of| of.address.checked_add(of.size.max(1)))
            .all(|end| end.is_some())
        {
            return Err("it has a block that ends beyond all memory");
        }
        let total = self.total();
        if total.is_none_or(|total| total > MOST) {
            return Err("it has a count of pages that no replay reaches");
        }
        Ok(())
    }

    /// The sum of all counts, whatever they count; `None` if it is none of 64 bits.
    fn total(&self) -> Option<u64> {
        let shares = self.shares.iter().flat_map(|share| share.3);
        let sites = self.sites.iter().map(|site| site.5);
        let pairs = self.pairs.iter().flat_map(|pair| [pair.3, pair.4]);
        let missed = self.missed.iter().flat_map(|missed| [missed.2, missed.3]);
        let destroyed = self.destroyed.iter().map(|destroyed| destroyed.2);
        let uses = self.uses.iter().flat_map(|of| of.3);
        let blocks = self.callers.values().map(|of| of.blocks);
        let mut all = shares
            .chain(sites)
            .chain(pairs)
            .chain(missed)
            .chain(destroyed)
            .chain(uses)
            .chain(blocks);
        all.try_fold(0, u64::checked_add)
    }
}

/// The most that all counts of a part may be together, so that those of all parts of a trace can be
/// added up.
const MOST: u64 = 1 << 52;

/// The counts of a share that a replay of pages has, in the order in which a part has them.
const fn counts_of(of: &Simulated) -> [u64; COUNTS] {
    [
        of.references,
        of.cold,
        of.replacement,
        of.true_sharing,
        of.false_sharing,
        of.upgrades,
        of.invalidations,
        of.hitm,
    ]
}

fn simulated(counts: &[u64; COUNTS]) -> Simulated {
    let [
        references,
        cold,
        replacement,
        true_sharing,
        false_sharing,
        upgrades,
        invalidations,
        hitm,
    ] = *counts;
    Simulated {
        references,
        cold,
        replacement,
        true_sharing,
        false_sharing,
        upgrades,
        invalidations,
        hitm,
        ..Simulated::default()
    }
}
