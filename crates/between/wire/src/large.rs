//! Blocks of more than [`MAX_SMALL`](crate::layout::MAX_SMALL) bytes. They are few and slow to
//! allocate, so they are in one hash table, each record under a sequence lock. The runtime
//! writes it; the tool reads all of it when it has changed.

use crate::layout::{LARGE, PAGE, STACK_INDEX, View};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Records in the table.
pub const LARGE_RECORDS: usize = 1 << 15;
/// The most records that are probed for a block.
const PROBES: usize = 32;
const RECORD_BYTES: usize = size_of::<Record>();
const RECORDS_PER_PAGE: usize = PAGE / RECORD_BYTES;
const _: () = assert!(RECORD_BYTES == 64);
const _: () = assert!(LARGE + LARGE_RECORDS * RECORD_BYTES <= STACK_INDEX);
const _: () = assert!(LARGE_RECORDS / RECORDS_PER_PAGE == 512);

#[repr(C, align(64))]
struct Record {
    /// Odd while a thread writes the record.
    sequence: AtomicU32,
    /// [`EMPTY`], [`LIVE`] or [`FREED`].
    state: AtomicU32,
    start: AtomicU64,
    size: AtomicU64,
    stack: AtomicU32,
    thread: AtomicU32,
    born: AtomicU32,
    freed: AtomicU32,
}

const EMPTY: u32 = 0;
const LIVE: u32 = 1;
const FREED: u32 = 2;

/// What the table records about one block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LargeBlock {
    /// The block's first byte.
    pub start: u64,
    /// Its size in bytes, as requested.
    pub size: u64,
    /// The number of the call stack that allocated it.
    pub stack: u32,
    /// Index of the allocating thread.
    pub thread: u32,
    /// The epoch in which it was allocated.
    pub born: u32,
    /// The epoch in which it was freed, if it was.
    pub freed: Option<u32>,
}

/// A copy of the table of large blocks, with the table's count of changes at that time.
#[cfg(feature = "tool")]
#[derive(Default)]
pub(crate) struct LargeSnapshot {
    pub(crate) changes: u64,
    pub(crate) live: std::collections::BTreeMap<u64, LargeBlock>,
    pub(crate) freed: Vec<LargeBlock>,
}

fn home(start: u64) -> usize {
    ((start >> 4).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49) as usize
}

impl View {
    fn large_record(&self, index: usize) -> &Record {
        let index = index & (LARGE_RECORDS - 1);
        // SAFETY: the index is below the number of records.
        unsafe { self.at(LARGE + index * RECORD_BYTES) }
    }

    /// Locks record `index` for writing; `None` if another thread has it locked.
    fn take_large(&self, index: usize) -> Option<&Record> {
        let record = self.large_record(index);
        let sequence = record.sequence.load(Ordering::Relaxed);
        (sequence & 1 == 0
            && record
                .sequence
                .compare_exchange(
                    sequence,
                    sequence.wrapping_add(1),
                    Ordering::Acquire,
                    Ordering::Relaxed,
                )
                .is_ok())
        .then_some(record)
    }

    fn release_large(&self, index: usize, record: &Record) {
        record.sequence.fetch_add(1, Ordering::Release);
        let page = (index & (LARGE_RECORDS - 1)) / RECORDS_PER_PAGE;
        if let Some(word) = self.status().large_pages.get(page / 64) {
            let bit = 1 << (page % 64);
            if word.load(Ordering::Relaxed) & bit == 0 {
                word.fetch_or(bit, Ordering::Release);
            }
        }
        self.status().large_changes.fetch_add(1, Ordering::Release);
    }

    /// Records a live block; `false` if there is no room. A record of an earlier block at the
    /// same start is replaced. Neither allocates nor blocks.
    pub fn insert_large(&self, block: LargeBlock) -> bool {
        let home = home(block.start);
        let probes = || home..home + PROBES;
        let state = |i| self.large_record(i).state.load(Ordering::Relaxed);
        let start = |i| self.large_record(i).start.load(Ordering::Relaxed);
        let same = probes().find(|&i| state(i) != EMPTY && start(i) == block.start);
        // Freed records are worth keeping, because a freed block can still be reported. So
        // empty records are used first.
        let choices = same
            .into_iter()
            .chain(probes().filter(|&i| state(i) == EMPTY))
            .chain(probes().filter(|&i| state(i) == FREED));
        for index in choices {
            let Some(record) = self.take_large(index) else {
                continue;
            };
            let replaced = record.start.load(Ordering::Relaxed) == block.start;
            if record.state.load(Ordering::Relaxed) == LIVE && !replaced {
                record.sequence.fetch_add(1, Ordering::Release);
                continue;
            }
            record.start.store(block.start, Ordering::Relaxed);
            record.size.store(block.size, Ordering::Relaxed);
            record.stack.store(block.stack, Ordering::Relaxed);
            record.thread.store(block.thread, Ordering::Relaxed);
            record.born.store(block.born, Ordering::Relaxed);
            record.state.store(LIVE, Ordering::Relaxed);
            self.release_large(index, record);
            return true;
        }
        false
    }

    fn find_large(&self, start: u64) -> Option<(usize, &Record)> {
        let home = home(start);
        (home..home + PROBES)
            .map(|i| (i, self.large_record(i)))
            .find(|(_, r)| {
                r.state.load(Ordering::Relaxed) == LIVE && r.start.load(Ordering::Relaxed) == start
            })
    }

    /// The live block that starts at `start`.
    pub fn large_at(&self, start: u64) -> Option<LargeBlock> {
        self.find_large(start)
            .and_then(|(index, _)| self.read_large(index))
    }

    /// Marks the live block at `start` as freed; `false` if there is none.
    pub fn free_large(&self, start: u64, epoch: u32) -> bool {
        let Some((index, _)) = self.find_large(start) else {
            return false;
        };
        let Some(record) = self.take_large(index) else {
            return false;
        };
        record.freed.store(epoch, Ordering::Relaxed);
        record.state.store(FREED, Ordering::Relaxed);
        self.release_large(index, record);
        true
    }

    fn read_large(&self, index: usize) -> Option<LargeBlock> {
        let record = self.large_record(index);
        for _ in 0..100 {
            let before = record.sequence.load(Ordering::Acquire);
            let state = record.state.load(Ordering::Relaxed);
            let block = LargeBlock {
                start: record.start.load(Ordering::Relaxed),
                size: record.size.load(Ordering::Relaxed),
                stack: record.stack.load(Ordering::Relaxed),
                thread: record.thread.load(Ordering::Relaxed),
                born: record.born.load(Ordering::Relaxed),
                freed: (state == FREED).then(|| record.freed.load(Ordering::Relaxed)),
            };
            core::sync::atomic::fence(Ordering::Acquire);
            if before & 1 == 0 && record.sequence.load(Ordering::Relaxed) == before {
                return (state == LIVE || state == FREED).then_some(block);
            }
            core::hint::spin_loop();
        }
        None
    }

    /// All records, live and freed.
    #[cfg(feature = "tool")]
    pub fn large_blocks(&self) -> Vec<LargeBlock> {
        let mut all = Vec::new();
        for (w, word) in self.status().large_pages.iter().enumerate() {
            let used = word.load(Ordering::Acquire);
            for page in (0..64).filter(|bit| used >> bit & 1 == 1) {
                let first = (w * 64 + page) * RECORDS_PER_PAGE;
                all.extend((first..first + RECORDS_PER_PAGE).filter_map(|i| self.read_large(i)));
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::LargeBlock;
    use crate::{Segment, SegmentOptions};

    const fn block(start: u64) -> LargeBlock {
        LargeBlock {
            start,
            size: 100_000,
            stack: 3,
            thread: 1,
            born: 2,
            freed: None,
        }
    }

    #[test]
    fn allocated_and_freed_blocks_are_found() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let view = segment.view();
        assert!(view.large_blocks().is_empty());
        for i in 1..=5000 {
            assert!(view.insert_large(block(i << 20)), "{i}");
        }
        assert_eq!(view.large_blocks().len(), 5000);
        assert!(view.free_large(7 << 20, 9));
        assert!(!view.free_large(7 << 20, 9), "already freed");
        assert!(!view.free_large(6000 << 20, 9), "never there");
        let seven = |b: &LargeBlock| b.start == 7 << 20;
        let freed = view.large_blocks().into_iter().find(seven);
        assert_eq!(freed.and_then(|b| b.freed), Some(9));
        assert!(view.insert_large(block(7 << 20)), "the address is reused");
        let again: Vec<_> = view.large_blocks().into_iter().filter(seven).collect();
        assert_eq!(again, [block(7 << 20)]);
    }
}
