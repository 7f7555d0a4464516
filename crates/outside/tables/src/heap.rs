//! The heap of a trace, while it is exported: which block is live at an address, and when each block
//! was allocated, freed and replaced. It must not know files.

use std::collections::BTreeMap;
use sunder_access::Address;
use sunder_trace::read::Blocks;

/// A row of the table of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// Its number, from 1.
    pub block: i64,
    /// Its first byte.
    pub address: u64,
    /// Requested bytes.
    pub size: u64,
    /// The requested alignment, if it is known.
    pub align: Option<u64>,
    /// The index of the thread that allocated it.
    pub thread: u32,
    /// The number of the call stack.
    pub site: u32,
    /// Place and time of the allocation.
    pub allocated: (i64, u64),
    /// Place and time of the free.
    pub freed: Option<(i64, u64)>,
    /// Place of the first later block that took some of its bytes.
    pub replaced: Option<i64>,
}

/// The heap at one moment of the order.
#[derive(Default)]
pub struct Heap {
    /// Blocks by address and recorded time, as replays find them.
    live: Blocks<(i64, i32)>,
    /// The blocks that held their bytes last, by first byte.
    known: BTreeMap<u64, BlockRow>,
    blocks: i64,
}

impl Heap {
    /// The number and the call stack of the block that was live at `address` at `ticks`; zeros if
    /// there was none.
    #[inline]
    pub fn at(&mut self, address: u64, ticks: u64) -> (i64, i32) {
        self.live
            .find(address, ticks)
            .map_or((0, 0), |found| found.1)
    }

    /// A block was allocated, whose number is not given yet. Blocks of which nothing more will
    /// become known are added to `done`.
    pub fn allocated(&mut self, row: BlockRow, ticks: u64, done: &mut Vec<BlockRow>) {
        self.blocks += 1;
        let row = BlockRow {
            block: self.blocks,
            ..row
        };
        let value = (row.block, row.site as i32);
        self.live.insert(row.address, row.size, ticks, value);
        let end = row.address.saturating_add(row.size.max(1));
        let over: Vec<u64> = self
            .known
            .range(..end)
            .rev()
            .take_while(|(start, old)| start.saturating_add(old.size.max(1)) > row.address)
            .map(|(&start, _)| start)
            .collect();
        for start in over {
            if let Some(old) = self.known.remove(&start) {
                done.push(BlockRow {
                    replaced: Some(row.allocated.0),
                    ..old
                });
            }
        }
        self.known.insert(row.address, row);
    }

    /// The block at `address` was freed at this place and time of the order. A second free of a
    /// block says nothing new.
    pub fn freed(&mut self, address: Address, ticks: u64, at: (i64, u64)) {
        self.live.free(address.0, ticks);
        if let Some(row) = self.known.get_mut(&address.0) {
            row.freed.get_or_insert(at);
        }
    }

    /// The blocks that nothing has replaced.
    pub fn rest(self) -> impl Iterator<Item = BlockRow> {
        self.known.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(address: u64, size: u64, ord: i64) -> BlockRow {
        BlockRow {
            block: 0,
            address,
            size,
            align: Some(1),
            thread: 1,
            site: 5,
            allocated: (ord, ord as u64),
            freed: None,
            replaced: None,
        }
    }

    #[test]
    fn a_block_is_done_when_another_takes_its_bytes() {
        let (mut heap, mut done) = (Heap::default(), Vec::new());
        heap.allocated(row(0x100, 32, 1), 10, &mut done);
        assert_eq!(heap.at(0x11f, 10), (1, 5));
        heap.freed(Address(0x100), 20, (4, 40));
        heap.freed(Address(0x100), 21, (5, 50));
        assert_eq!(heap.at(0x11f, 30), (0, 0));
        heap.allocated(row(0x110, 8, 7), 30, &mut done);
        assert_eq!(heap.at(0x110, 30), (2, 5));
        let old = BlockRow {
            block: 1,
            freed: Some((4, 40)),
            replaced: Some(7),
            ..row(0x100, 32, 1)
        };
        assert_eq!(done, [old]);
        assert_eq!(heap.rest().map(|row| row.block).collect::<Vec<_>>(), [2]);
    }
}
