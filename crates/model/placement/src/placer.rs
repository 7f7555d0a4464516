//! Replays requests under a policy and computes the addresses at which the objects would lie.
//! Used by the simulator; it touches no memory except its own.

use crate::arena::{Arena, Reserve};
use crate::blocks::{Alike, Blocks, Mixed};
use crate::class::MIN_ALIGN;
use crate::error::PlacementError;
use crate::pages::Pages;
use crate::policy::{Bucket, CallSite, Placement, Policy, Request};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use sunder_access::{Address, Span};

/// The largest alignment that a request may have.
pub const MAX_ALIGN: u64 = 1 << 30;
/// The largest size that a request may have.
pub const MAX_SIZE: u64 = 1 << 47;
/// Bytes that glibc uses before each block (`malloc_chunk::mchunk_size`).
const GENERAL_HEADER: u64 = 8;

/// The place of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// Its first byte.
    pub address: Address,
    /// The number of its bucket, from 0 in order of appearance.
    pub bucket: usize,
}

/// What has been placed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Equations (1) to (5) over all requests, freed or not, as in the paper.
    pub pages: Pages,
    /// Pages that objects have reached. It is less than [`Pages::with_buckets`] if freed memory
    /// was used again, and more if blocks are larger than the requests.
    pub reached_pages: u64,
    /// Requests.
    pub allocations: u64,
    /// Frees.
    pub frees: u64,
    /// Bytes of live objects, as requested.
    pub live_bytes: u64,
    /// The largest value of `live_bytes`.
    pub peak_bytes: u64,
}

#[derive(Clone, Debug)]
struct Memory {
    bucket: Bucket,
    blocks: Blocks,
    /// Requested bytes, freed or not.
    requested: u64,
}

#[derive(Clone, Copy, Debug)]
struct Live {
    bucket: usize,
    size: u64,
}

/// Places objects under one policy.
#[derive(Clone, Debug)]
pub struct Placer<A = Reserve> {
    policy: Policy,
    padded: Vec<CallSite>,
    page: u64,
    line: u64,
    arena: A,
    numbers: BTreeMap<Bucket, usize>,
    memory: Vec<Memory>,
    live: BTreeMap<Address, Live>,
    stats: Stats,
}

impl Placer {
    /// A placer under `policy`, with pages and lines of these sizes, in an address space of its
    /// own.
    ///
    /// # Errors
    /// [`PlacementError::Sizes`].
    pub fn new(policy: Policy, page: u64, line: u64) -> Result<Self, PlacementError> {
        Self::with_arena(policy, page, line, Reserve::default())
    }
}

impl<A: Arena> Placer<A> {
    /// As [`Placer::new`], with address space from `arena`.
    ///
    /// # Errors
    /// [`PlacementError::Sizes`].
    pub fn with_arena(
        policy: Policy,
        page: u64,
        line: u64,
        arena: A,
    ) -> Result<Self, PlacementError> {
        let possible = page.is_power_of_two()
            && line.is_power_of_two()
            && (MIN_ALIGN..=page).contains(&line)
            && page <= MAX_ALIGN;
        if !possible {
            return Err(PlacementError::Sizes { page, line });
        }
        Ok(Self {
            policy,
            padded: Vec::new(),
            page,
            line,
            arena,
            numbers: BTreeMap::new(),
            memory: Vec::new(),
            live: BTreeMap::new(),
            stats: Stats::default(),
        })
    }

    /// Gives the objects of these call sites lines of their own from now on.
    #[must_use]
    pub fn padding(mut self, sites: impl IntoIterator<Item = CallSite>) -> Self {
        self.padded.extend(sites);
        self.padded.sort_unstable();
        self.padded.dedup();
        self
    }

    /// Places an object.
    ///
    /// # Errors
    /// If the request is impossible or the arena is used up.
    pub fn place(&mut self, request: Request) -> Result<Placed, PlacementError> {
        let align = request.align.max(1);
        if !align.is_power_of_two() || align > MAX_ALIGN {
            return Err(PlacementError::Alignment(request.align));
        }
        if request.size > MAX_SIZE {
            return Err(PlacementError::TooLarge(request.size));
        }
        let placement = Placement {
            policy: self.policy,
            padded: &self.padded,
            line: self.line,
        };
        let number = self.number(placement.bucket(&request));
        let memory = self.memory.get_mut(number).ok_or(PlacementError::Full)?;
        let address = memory
            .blocks
            .place(request.size, align, &mut self.arena, self.page)
            .ok_or(PlacementError::Full)?;
        memory.requested = memory.requested.saturating_add(request.size);
        let live = Live {
            bucket: number,
            size: request.size,
        };
        self.live.insert(address, live);
        self.stats.allocations += 1;
        self.stats.live_bytes += request.size;
        self.stats.peak_bytes = self.stats.peak_bytes.max(self.stats.live_bytes);
        Ok(Placed {
            address,
            bucket: number,
        })
    }

    /// The index of a bucket, which is added if it is new.
    fn number(&mut self, bucket: Bucket) -> usize {
        let next = self.memory.len();
        let number = *self.numbers.entry(bucket).or_insert(next);
        if number == next {
            let least = if bucket.padded { self.line } else { MIN_ALIGN };
            let align = bucket.align.unwrap_or(least).max(least);
            let blocks = match bucket.size {
                Some(size) => Blocks::Alike(Alike::new(size, align)),
                None if bucket.site.is_some() => Blocks::Mixed(Mixed::new(0)),
                None => Blocks::Mixed(Mixed::new(GENERAL_HEADER)),
            };
            self.memory.push(Memory {
                bucket,
                blocks,
                requested: 0,
            });
        }
        number
    }

    /// Frees the object that starts at `address`, and returns its bytes.
    ///
    /// # Errors
    /// [`PlacementError::NotLive`].
    pub fn free(&mut self, address: Address) -> Result<Span, PlacementError> {
        let live = self
            .live
            .remove(&address)
            .ok_or(PlacementError::NotLive(address))?;
        if let Some(memory) = self.memory.get_mut(live.bucket) {
            memory.blocks.free(address, live.size);
        }
        self.stats.frees += 1;
        self.stats.live_bytes -= live.size;
        Ok(Span::new(address, live.size))
    }

    /// The properties that the objects of bucket `number` have in common.
    pub fn bucket(&self, number: usize) -> Option<&Bucket> {
        self.memory.get(number).map(|memory| &memory.bucket)
    }

    /// What was placed, and in how many pages.
    pub fn stats(&self) -> Stats {
        let mut stats = self.stats;
        stats.pages = Pages::new(self.page);
        for memory in &self.memory {
            stats.pages = stats.pages.bucket(memory.requested);
            stats.reached_pages += memory.blocks.pages(self.page);
        }
        stats
    }
}
