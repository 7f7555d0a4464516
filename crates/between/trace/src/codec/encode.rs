//! From slots to a block. Runs inside the recorded program: no heap, no panic, all memory in one
//! value for which zero bytes are valid.

use super::{COLUMNS, LENGTHS, SLOTS, Site};
use crate::block::{BlockHeader, HEADER_BYTES, Kind};
use crate::slot::{PAYLOAD, Slot, tag};
use crate::varint::{Column, zigzag};
use crate::zstandard::Compressor;

const TABLE: usize = SLOTS * 2;

// The longest that each column can be, for SLOTS slots: a count or a reference takes three bytes,
// 64 bits take ten, 49 bits take seven.
const STAMPS: usize = SLOTS * 13 + 32;
const KEYS: usize = SLOTS * 10 + 32;
const ORDER: usize = SLOTS * 6 + 32;
const HITS: usize = SLOTS * 3 + 32;
const DELTAS: usize = SLOTS * 10 + 32;
const JOINED: usize = LENGTHS + STAMPS + KEYS + ORDER + HITS + DELTAS;
/// Zstandard's bound, and the header before it.
const OUT: usize = HEADER_BYTES + JOINED + JOINED / 128 + 1024;

const _: () = assert!(JOINED <= crate::block::LARGEST_PAYLOAD);
const _: () = assert!(OUT <= crate::block::LARGEST_PAYLOAD);

/// The description of a block, besides its slots.
#[derive(Clone, Copy, Debug)]
pub struct Of {
    /// The thread's index.
    pub thread: u32,
    /// The thread's kernel id.
    pub tid: u32,
    /// The number of the block among those of its thread.
    pub sequence: u32,
    /// Ticks after the last slot.
    pub end: u64,
    /// `CLOCK_MONOTONIC` now, nanoseconds.
    pub clock: u64,
}

/// How many events of each kind a block holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Accesses of all kinds.
    pub accesses: u64,
    /// All other events.
    pub others: u64,
}

/// Packs blocks, one after another. Takes some megabytes, of which only the used pages are ever
/// touched. Zero bytes are a valid value.
#[repr(C)]
pub struct Encoder {
    compressor: Compressor,
    table: [u32; TABLE],
    sites: [Site; SLOTS],
    stamps: [u8; STAMPS],
    keys: [u8; KEYS],
    order: [u8; ORDER],
    hits: [u8; HITS],
    deltas: [u8; DELTAS],
    joined: [u8; JOINED],
    out: [u8; OUT],
}

struct Columns<'a> {
    stamps: Column<'a>,
    keys: Column<'a>,
    order: Column<'a>,
    hits: Column<'a>,
    deltas: Column<'a>,
}

/// The result of one pass over the slots.
struct Pass {
    sites: usize,
    count: u32,
    first: u64,
    last: u64,
    counts: Counts,
}

impl Encoder {
    /// An encoder on the heap, for programs that may use it; `None` if there is no memory.
    pub fn boxed() -> Option<Box<Self>> {
        let layout = std::alloc::Layout::new::<Self>();
        // SAFETY: the layout has a size. Zero bytes are a valid encoder, which consists of arrays
        // of integers and of a compressor for which the same holds. The memory has the layout that
        // `Box` expects.
        unsafe {
            let memory = std::alloc::alloc_zeroed(layout).cast::<Self>();
            (!memory.is_null()).then(|| Box::from_raw(memory))
        }
    }

    /// Packs `slots` into a block with its header, ready to be written. Empty slots are left out.
    /// The first slot that is not empty must be a stamp; otherwise the block begins at `of.end`.
    /// `None` if there are more than `SLOTS` slots: then this block is lost, and no other.
    pub fn pack(&mut self, slots: &[Slot], of: &Of) -> Option<(&[u8], Counts)> {
        if slots.len() > SLOTS {
            return None;
        }
        let mut columns = Columns {
            stamps: Column::new(&mut self.stamps),
            keys: Column::new(&mut self.keys),
            order: Column::new(&mut self.order),
            hits: Column::new(&mut self.hits),
            deltas: Column::new(&mut self.deltas),
        };
        let pass = pass(
            slots,
            of.end,
            &mut columns,
            &mut self.table,
            &mut self.sites,
        );
        for site in self.sites.get(..pass.sites)? {
            *self.table.get_mut(site.place as usize)? = 0;
        }
        let parts = [
            columns.stamps.written()?,
            columns.keys.written()?,
            columns.order.written()?,
            columns.hits.written()?,
            columns.deltas.written()?,
        ];
        let unpacked = join(&mut self.joined, parts)?;
        let payload = self.out.get_mut(HEADER_BYTES..)?;
        let stored = self
            .compressor
            .compress(self.joined.get(..unpacked)?, payload)?;
        let header = BlockHeader {
            kind: Some(Kind::Events),
            compressed: true,
            stored: stored as u32,
            unpacked: unpacked as u32,
            thread: of.thread,
            sequence: of.sequence,
            count: pass.count,
            tid: of.tid,
            first: pass.first,
            last: pass.last,
            clock: of.clock,
        };
        let head = header.encoded(self.out.get(HEADER_BYTES..HEADER_BYTES + stored)?);
        self.out.get_mut(..HEADER_BYTES)?.copy_from_slice(&head);
        Some((self.out.get(..HEADER_BYTES + stored)?, pass.counts))
    }
}

fn join(joined: &mut [u8], parts: [&[u8]; COLUMNS]) -> Option<usize> {
    let mut at = 0;
    for part in parts {
        let length = (part.len() as u32).to_le_bytes();
        joined.get_mut(at..at + 4)?.copy_from_slice(&length);
        at += 4;
    }
    for part in parts {
        joined.get_mut(at..at + part.len())?.copy_from_slice(part);
        at += part.len();
    }
    Some(at)
}

fn pass(
    slots: &[Slot],
    end: u64,
    columns: &mut Columns<'_>,
    table: &mut [u32; TABLE],
    sites: &mut [Site; SLOTS],
) -> Pass {
    let mut known = 0usize;
    let (mut first, mut ticks, mut gap) = (None, 0, 0);
    let (mut count, mut accesses) = (0u32, 0u64);
    let (mut run, mut hits) = (0, 0);
    let (mut previous, mut value): (Option<usize>, u64) = (None, 0);
    let mut rest = slots;
    while let Some((slot, after)) = rest.split_first() {
        // Most slots are predicted completely. These have a loop of their own, with few variables.
        let predicted = predicted(rest, sites, &mut previous);
        if predicted.slots > 0 {
            let (done, after) = rest.split_at(predicted.slots);
            rest = after;
            value = done.last().map_or(value, |slot| slot.value);
            accesses += predicted.accesses;
            count += predicted.slots as u32;
            gap += predicted.slots as u64;
            run += predicted.slots as u64;
            hits += predicted.slots as u64;
            continue;
        }
        rest = after;
        let key = slot.key;
        if key.0 == 0 {
            continue;
        }
        if key.tag() == tag::STAMP {
            if first.is_none() {
                (first, ticks) = (Some(slot.value), slot.value);
                // Slots before the first stamp, which should not occur, get its time.
                if gap == 0 {
                    continue;
                }
            }
            // Ticks never go back within a thread, whatever the clock does.
            let now = slot.value.max(ticks);
            columns.stamps.put(gap);
            columns.stamps.put(now - ticks);
            (ticks, gap) = (now, 0);
            continue;
        }
        count += 1;
        gap += 1;
        accesses += u64::from(key.tag() < tag::SIZE);
        let follower = match previous {
            Some(site) => sites.get(site).map_or(0, |s| s.next),
            None => 0,
        };
        let expected = (follower as usize).wrapping_sub(1);
        let site = if sites.get(expected).is_some_and(|s| s.key == key.0) {
            run += 1;
            expected
        } else {
            columns.order.put(run);
            run = 0;
            let (site, place) = find(table, sites, key.0);
            let site = if let Some(site) = site {
                columns.order.put(site as u64 + 1);
                site
            } else {
                columns.order.put(0);
                let before = known.checked_sub(1).and_then(|i: usize| sites.get(i));
                let before = before.map_or(0, |s| s.key & PAYLOAD);
                let step = (key.0 & PAYLOAD).wrapping_sub(before);
                columns.keys.put(zigzag(step as i64));
                columns.keys.put(key.0 >> 48);
                if let (Some(new), Some(entry)) = (sites.get_mut(known), table.get_mut(place)) {
                    *new = Site::new(key.0, value, place as u32);
                    known += 1;
                    *entry = known as u32;
                }
                known - 1
            };
            if let Some(before) = previous.and_then(|p: usize| sites.get_mut(p)) {
                before.next = site as u32 + 1;
            }
            site
        };
        previous = Some(site);
        value = slot.value;
        if let Some(site) = sites.get_mut(site) {
            if site.guess() == value {
                site.hit();
                hits += 1;
            } else {
                columns.hits.put(hits);
                hits = 0;
                let delta = site.difference(value);
                columns.deltas.put(zigzag(delta as i64));
                site.miss(delta);
            }
        }
    }
    let first = first.unwrap_or(end);
    Pass {
        sites: known,
        count,
        first,
        last: end.max(ticks).max(first),
        counts: Counts {
            accesses,
            others: u64::from(count) - accesses,
        },
    }
}

/// How many slots in a row were predicted, and how many of them are accesses.
struct Predicted {
    slots: usize,
    accesses: u64,
}

/// Takes the slots at the front whose key and value both are as the site before them predicts.
/// `previous` is the last site, before and after.
#[inline(always)]
fn predicted(slots: &[Slot], sites: &mut [Site; SLOTS], previous: &mut Option<usize>) -> Predicted {
    let mut found = Predicted {
        slots: 0,
        accesses: 0,
    };
    let Some(site) = previous.and_then(|p| sites.get(p)) else {
        return found;
    };
    // A site whose follower is not known has 0 there, which wraps to an index out of bounds.
    let mut expected = (site.next as usize).wrapping_sub(1);
    let mut last = *previous;
    for slot in slots {
        let Some(site) = sites.get_mut(expected) else {
            break;
        };
        if site.key != slot.key.0 || site.guess() != slot.value {
            break;
        }
        site.hit();
        last = Some(expected);
        expected = (site.next as usize).wrapping_sub(1);
        found.slots += 1;
        found.accesses += u64::from(slot.key.tag() < tag::SIZE);
    }
    *previous = last;
    found
}

/// The site of `key` if it is known, and its index in the table. The table is at most half full, so
/// a free entry is always found.
#[inline]
fn find(table: &[u32; TABLE], sites: &[Site; SLOTS], key: u64) -> (Option<usize>, usize) {
    let mut place = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize & (TABLE - 1);
    loop {
        let Some(site) = (table[place & (TABLE - 1)] as usize).checked_sub(1) else {
            return (None, place);
        };
        if sites.get(site).is_some_and(|s| s.key == key) {
            return (Some(site), place);
        }
        place = (place + 1) & (TABLE - 1);
    }
}

impl Encoder {
    /// Memory for another block's payload, until the next [`Encoder::pack`].
    pub fn scratch(&mut self) -> &mut [u8] {
        &mut self.joined
    }
}

impl core::fmt::Debug for Encoder {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Encoder").finish_non_exhaustive()
    }
}
