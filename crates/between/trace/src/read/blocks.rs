//! Finds the heap block that holds an address, fast enough for a replay: a sorted table of
//! blocks, and in front of it a direct-mapped table of recent results. Addresses are the
//! recorded ones.
//!
//! If threads are replayed in another order than they were recorded in, a block may be freed
//! after another thread was given its memory. So a block is found by an address *and* the
//! recorded time of the access.

use std::collections::BTreeMap;

const NONE: u32 = u32::MAX;

/// Recent results are kept for pieces of memory of this many bits.
const PIECE_BITS: u32 = 6;

/// Number of recent results: half a mebibyte, which stays in a processor's cache.
const REMEMBERED: usize = 1 << 15;

/// At most this many displaced blocks are kept. If not all frees of a program were recorded,
/// their number would grow without end.
const MOST_DISPLACED: usize = 1 << 10;

/// The blocks by address and time.
#[derive(Debug)]
pub struct Blocks<T> {
    slots: Vec<Slot<T>>,
    unused: Vec<u32>,
    /// Blocks by their start, none overlapping another: where several blocks were, the
    /// youngest.
    by_start: BTreeMap<u64, u32>,
    /// Blocks that are not freed although others have been allocated over them.
    displaced: Vec<u32>,
    near: Box<[Near]>,
}

#[derive(Clone, Copy, Debug)]
struct Slot<T> {
    start: u64,
    len: u64,
    born: u64,
    died: u64,
    value: T,
}

impl<T> Slot<T> {
    #[inline]
    const fn holds(&self, address: u64, ticks: u64) -> bool {
        address.wrapping_sub(self.start) < self.len && self.born <= ticks && ticks <= self.died
    }

    const fn is_live(&self) -> bool {
        self.died == u64::MAX
    }
}

/// The recent result for a piece of memory: a block that was found there, or that there is no
/// block.
#[derive(Clone, Copy, Debug)]
struct Near {
    piece: u64,
    slot: u32,
}

const FAR: Near = Near {
    piece: u64::MAX,
    slot: NONE,
};

impl<T: Copy> Default for Blocks<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            unused: Vec::new(),
            by_start: BTreeMap::new(),
            displaced: Vec::new(),
            near: vec![FAR; REMEMBERED].into(),
        }
    }
}

impl<T: Copy> Blocks<T> {
    /// The block that held `address` at `ticks`: its start and its value.
    #[inline]
    pub fn find(&mut self, address: u64, ticks: u64) -> Option<(u64, T)> {
        let piece = address >> PIECE_BITS;
        let near = self.near[piece as usize & (REMEMBERED - 1)];
        if near.piece == piece {
            if near.slot == NONE {
                return None;
            }
            let slot = &self.slots[near.slot as usize];
            if slot.holds(address, ticks) {
                return Some((slot.start, slot.value));
            }
        }
        self.search(address, ticks)
    }

    #[inline(never)]
    fn search(&mut self, address: u64, ticks: u64) -> Option<(u64, T)> {
        let piece = address >> PIECE_BITS;
        let before = self.by_start.range(..=address).next_back();
        let found = before.map(|(_, &slot)| slot);
        if let Some(number) = found
            && self.slots[number as usize].holds(address, ticks)
        {
            let slot = &self.slots[number as usize];
            let found = (slot.start, slot.value);
            self.near[piece as usize & (REMEMBERED - 1)] = Near {
                piece,
                slot: number,
            };
            return Some(found);
        }
        let mut displaced = self.displaced.iter().map(|&d| &self.slots[d as usize]);
        if let Some(slot) = displaced.find(|s| s.holds(address, ticks)) {
            return Some((slot.start, slot.value));
        }
        if self.is_empty_piece(piece) {
            let slot = NONE;
            self.near[piece as usize & (REMEMBERED - 1)] = Near { piece, slot };
        }
        None
    }

    fn is_empty_piece(&self, piece: u64) -> bool {
        let start = piece << PIECE_BITS;
        let end = start.saturating_add(1 << PIECE_BITS);
        let last = self.by_start.range(..end).next_back();
        let mut others = last
            .map(|(_, slot)| slot)
            .into_iter()
            .chain(&self.displaced);
        others.all(|&slot| {
            let slot = &self.slots[slot as usize];
            slot.start.saturating_add(slot.len) <= start || slot.start >= end
        })
    }

    /// Adds a block of `len` bytes at `start`, allocated at `born`.
    pub fn insert(&mut self, start: u64, len: u64, born: u64, value: T) {
        let len = len.max(1);
        let end = start.saturating_add(len);
        let slot = Slot {
            start,
            len,
            born,
            died: u64::MAX,
            value,
        };
        let over: Vec<(u64, u32)> = self
            .by_start
            .range(..end)
            .rev()
            .map(|(&at, &slot)| (at, slot))
            .take_while(|&(_, slot)| {
                let slot = &self.slots[slot as usize];
                slot.start.saturating_add(slot.len) > start
            })
            .collect();
        let number = self.number(slot);
        if over
            .iter()
            .any(|&(_, s)| self.slots[s as usize].born > born)
        {
            // The event comes late: blocks that were allocated later are in the table already.
            self.displace(number);
            return self.forget(start, end);
        }
        for (at, old) in over {
            self.by_start.remove(&at);
            if self.slots[old as usize].is_live() {
                self.displace(old);
            } else {
                self.unused.push(old);
            }
        }
        self.by_start.insert(start, number);
        self.forget(start, end);
    }

    fn displace(&mut self, number: u32) {
        if self.displaced.len() >= MOST_DISPLACED {
            let oldest = self.displaced.remove(0);
            self.slots[oldest as usize].len = 0;
            self.unused.push(oldest);
        }
        self.displaced.push(number);
    }

    fn number(&mut self, slot: Slot<T>) -> u32 {
        if let Some(number) = self.unused.pop() {
            self.slots[number as usize] = slot;
            return number;
        }
        self.slots.push(slot);
        (self.slots.len() - 1) as u32
    }

    /// Drops the recent results for the pieces from `start` to `end`.
    fn forget(&mut self, start: u64, end: u64) {
        let (first, last) = (start >> PIECE_BITS, (end - 1) >> PIECE_BITS);
        if last - first >= REMEMBERED as u64 {
            self.near.fill(FAR);
            return;
        }
        for piece in first..=last {
            let near = &mut self.near[piece as usize & (REMEMBERED - 1)];
            if near.piece == piece {
                *near = FAR;
            }
        }
    }

    /// Frees the block that starts at `start`, at `ticks`. Returns its value. The block is
    /// still found at earlier times.
    pub fn free(&mut self, start: u64, ticks: u64) -> Option<T> {
        let youngest = self.by_start.get(&start).copied();
        if let Some(number) = youngest {
            let slot = &mut self.slots[number as usize];
            if slot.born <= ticks && slot.is_live() {
                slot.died = ticks;
                return Some(slot.value);
            }
        }
        let place = self.displaced.iter().position(|&number| {
            let slot = &self.slots[number as usize];
            slot.start == start && slot.born <= ticks
        })?;
        let number = self.displaced.swap_remove(place);
        let value = self.slots[number as usize].value;
        // A recent result that still has this number must not lead to the block that is given
        // the number next.
        self.slots[number as usize].len = 0;
        self.unused.push(number);
        Some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_found_while_it_is_there() {
        let mut blocks = Blocks::default();
        blocks.insert(0x1000, 32, 10, 'a');
        blocks.insert(0x1020, 32, 10, 'b');
        for _ in 0..2 {
            assert_eq!(blocks.find(0x101f, 10), Some((0x1000, 'a')));
            assert_eq!(blocks.find(0x1020, 99), Some((0x1020, 'b')));
            assert_eq!(blocks.find(0x1040, 99), None);
            assert_eq!(blocks.find(0xfff, 99), None);
        }
        assert_eq!(blocks.free(0x1000, 50), Some('a'));
        assert_eq!(blocks.find(0x1000, 50), Some((0x1000, 'a')));
        assert_eq!(blocks.find(0x1000, 51), None);
        assert_eq!(blocks.free(0x1000, 60), None);
    }

    #[test]
    fn memory_without_blocks_gets_one() {
        let mut blocks = Blocks::default();
        assert_eq!(blocks.find(0x5008, 1), None);
        assert_eq!(blocks.find(0x5008, 1), None);
        blocks.insert(0x5000, 16, 2, 'a');
        assert_eq!(blocks.find(0x5008, 2), Some((0x5000, 'a')));
        // A block of more pieces than there are recent results.
        blocks.find(0x9000, 3);
        blocks.insert(0x6000, 64 * REMEMBERED as u64 * 2, 4, 'b');
        assert_eq!(blocks.find(0x9000, 4), Some((0x6000, 'b')));
    }

    #[test]
    fn an_access_belongs_to_the_block_of_its_time() {
        let mut blocks = Blocks::default();
        blocks.insert(0x1000, 64, 10, 'a');
        // Freed at 20, but the free is replayed after the next allocation.
        blocks.insert(0x1000, 64, 30, 'b');
        assert_eq!(blocks.find(0x1008, 15), Some((0x1000, 'a')));
        assert_eq!(blocks.find(0x1008, 35), Some((0x1000, 'b')));
        assert_eq!(blocks.free(0x1000, 20), Some('a'));
        assert_eq!(blocks.find(0x1008, 35), Some((0x1000, 'b')));
        assert_eq!(blocks.free(0x1000, 40), Some('b'));
        // A block that is replayed after its successor.
        blocks.insert(0x1000, 64, 70, 'd');
        blocks.insert(0x1000, 64, 50, 'c');
        assert_eq!(blocks.find(0x1008, 55), Some((0x1000, 'c')));
        assert_eq!(blocks.find(0x1008, 75), Some((0x1000, 'd')));
        assert_eq!(blocks.free(0x1000, 60), Some('c'));
        assert_eq!(blocks.free(0x1000, 80), Some('d'));
    }

    #[test]
    fn a_number_is_used_again() {
        let mut blocks = Blocks::default();
        for round in 0..1000u64 {
            blocks.insert(0x1000, 48, round * 10, round);
            assert_eq!(blocks.find(0x1010, round * 10), Some((0x1000, round)));
            blocks.free(0x1000, round * 10 + 5);
        }
        assert!(blocks.slots.len() <= 2);
    }
}
