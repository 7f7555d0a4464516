//! How objects lie in the memory of one bucket: blocks of one size and alignment side by side
//! ([`Alike`]), or blocks of any size, each in the smallest gap that holds it ([`Mixed`]).
//! Called by the placer; neither form knows why an object belongs to the bucket.
//!
//! Both fill spans of address space from the front, and count a page as used once a block has
//! reached it.

use crate::arena::Arena;
use crate::class::{MIN_ALIGN, round_up};
use crate::pages::pages_for;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use sunder_access::Address;

/// The bytes of address space that a bucket takes at a time, unless its blocks need more. Only
/// pages that are reached count, so this may be large; with fewer spans less is lost at their
/// ends.
const SPAN: u64 = 1 << 30;

/// The part of a span that is in use: from its start to the end of its last block.
#[derive(Clone, Copy, Debug, Default)]
struct Frontier {
    start: u64,
    next: u64,
    end: u64,
    /// Pages used in the spans before this one.
    full: u64,
}

impl Frontier {
    fn pages(&self, page: u64) -> u64 {
        self.full + pages_for(self.next - self.start, page)
    }

    /// Begins a new span.
    fn open(&mut self, arena: &mut impl Arena, bytes: u64, align: u64, page: u64) -> Option<()> {
        let start = arena.reserve(bytes, align.max(page))?.0;
        *self = Self {
            full: self.pages(page),
            start,
            next: start,
            end: start.checked_add(bytes)?,
        };
        Some(())
    }
}

/// Blocks of one size and alignment.
#[derive(Clone, Debug)]
pub struct Alike {
    block: u64,
    align: u64,
    free: Vec<u64>,
    frontier: Frontier,
}

impl Alike {
    /// Blocks for objects of `size` bytes with alignment `align`.
    pub fn new(size: u64, align: u64) -> Self {
        let align = align.max(MIN_ALIGN);
        Self {
            block: round_up(size.max(1), align),
            align,
            free: Vec::new(),
            frontier: Frontier::default(),
        }
    }

    /// Bytes of a span: a whole number of blocks and of pages. So a full span loses nothing at
    /// its end, and equation (4) holds exactly.
    fn span(&self, page: u64) -> Option<u64> {
        let shared = 1u64 << self.block.trailing_zeros().min(page.trailing_zeros());
        let least = (self.block / shared).checked_mul(page)?;
        match SPAN / least {
            0 if least >> 32 == 0 => Some(least),
            // The blocks are so large and odd that no span of tolerable size fits exactly. Part of
            // a page is lost in 64 blocks.
            0 => Some(round_up(self.block.checked_mul(64)?, page)),
            times => least.checked_mul(times),
        }
    }

    fn place(&mut self, arena: &mut impl Arena, page: u64) -> Option<u64> {
        if let Some(block) = self.free.pop() {
            return Some(block);
        }
        let at = &self.frontier;
        if at.end - at.next < self.block {
            let span = self.span(page)?;
            self.frontier.open(arena, span, self.align, page)?;
        }
        let block = self.frontier.next;
        self.frontier.next += self.block;
        Some(block)
    }
}

/// Blocks of any size. Each takes the smallest gap that is large enough, of equal ones the one
/// at the lowest address, and adjacent gaps are joined. The effect is that of glibc's bins.
#[derive(Clone, Debug)]
pub struct Mixed {
    /// Bytes before each object that the allocator uses itself.
    header: u64,
    /// Gaps: length by start.
    gaps: BTreeMap<u64, u64>,
    /// The same gaps as (length, start).
    by_length: BTreeSet<(u64, u64)>,
    frontier: Frontier,
}

impl Mixed {
    pub fn new(header: u64) -> Self {
        Self {
            header,
            gaps: BTreeMap::new(),
            by_length: BTreeSet::new(),
            frontier: Frontier::default(),
        }
    }

    /// Bytes from the start of a block to the next one. Where there are headers, at least two
    /// headers with links, as in glibc.
    fn length(&self, size: u64) -> u64 {
        let least = if self.header == 0 { MIN_ALIGN } else { 32 };
        round_up(size.saturating_add(self.header), MIN_ALIGN).max(least)
    }

    fn remove_gap(&mut self, start: u64) -> u64 {
        let length = self.gaps.remove(&start).unwrap_or(0);
        self.by_length.remove(&(length, start));
        length
    }

    fn add_gap(&mut self, start: u64, length: u64) {
        if length > 0 {
            self.gaps.insert(start, length);
            self.by_length.insert((length, start));
        }
    }

    /// The start of the block for an object with alignment `align` in a gap that begins at
    /// `start`. The object follows the header. `start` plus the header must be aligned to
    /// [`MIN_ALIGN`].
    fn fit(&self, start: u64, align: u64) -> u64 {
        round_up(start + self.header, align.max(MIN_ALIGN)) - self.header
    }

    /// The object's address.
    fn place(&mut self, size: u64, align: u64, arena: &mut impl Arena, page: u64) -> Option<u64> {
        let length = self.length(size);
        let found = self
            .by_length
            .range((length, 0)..)
            .find(|&&(gap, start)| self.fit(start, align) - start + length <= gap)
            .copied();
        if let Some((gap, start)) = found {
            self.remove_gap(start);
            let block = self.fit(start, align);
            self.add_gap(start, block - start);
            self.add_gap(block + length, gap - (block - start) - length);
            return Some(block + self.header);
        }
        let at = &self.frontier;
        let fits = at.end > 0 && self.fit(at.next, align).checked_add(length)? <= at.end;
        if !fits {
            let wanted = length.checked_add(align)?.checked_add(page)?;
            let span = round_up(wanted, page).max(SPAN);
            self.frontier.open(arena, span, page, page)?;
            // So that objects, which follow their headers, are aligned.
            self.frontier.next += (MIN_ALIGN - self.header) % MIN_ALIGN;
        }
        let start = self.frontier.next;
        let block = self.fit(start, align);
        self.add_gap(start, block - start);
        self.frontier.next = block + length;
        Some(block + self.header)
    }

    fn free(&mut self, address: u64, size: u64) {
        let mut start = address - self.header;
        let mut length = self.length(size);
        if let Some((&before, &gap)) = self.gaps.range(..start).next_back()
            && before + gap == start
        {
            self.remove_gap(before);
            (start, length) = (before, length + gap);
        }
        if self.gaps.contains_key(&(start + length)) {
            length += self.remove_gap(start + length);
        }
        self.add_gap(start, length);
    }
}

/// The memory of one bucket.
#[derive(Clone, Debug)]
pub enum Blocks {
    Alike(Alike),
    Mixed(Mixed),
}

impl Blocks {
    pub fn place(
        &mut self,
        size: u64,
        align: u64,
        arena: &mut impl Arena,
        page: u64,
    ) -> Option<Address> {
        match self {
            Self::Alike(blocks) => blocks.place(arena, page),
            Self::Mixed(blocks) => blocks.place(size, align, arena, page),
        }
        .map(Address)
    }

    pub fn free(&mut self, address: Address, size: u64) {
        match self {
            Self::Alike(blocks) => blocks.free.push(address.0),
            Self::Mixed(blocks) => blocks.free(address.0, size),
        }
    }

    /// Pages that blocks have reached so far.
    pub fn pages(&self, page: u64) -> u64 {
        match self {
            Self::Alike(blocks) => blocks.frontier.pages(page),
            Self::Mixed(blocks) => blocks.frontier.pages(page),
        }
    }
}
