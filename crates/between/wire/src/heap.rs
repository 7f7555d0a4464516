//! The tool's view of the live heap: which block an address belongs to, and the events on
//! watched lines. It reads what the runtime writes, and writes only the list of watched lines.

use crate::large::LargeBlock;
use crate::layout::{
    Entry, EntryState, HOT_NEXT_EPOCH, HOT_WATCHED, MAX_SMALL, MAX_WATCHED, SLOT_SHIFT, hot_epoch,
    watch_bit,
};
use crate::segment::Segment;
use std::sync::atomic::Ordering;
use sunder_access::{Address, CodeAddress, Span, ThreadId, Time};

/// When something happened, as exactly as the epochs tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeBounds {
    /// The earliest possible time.
    pub earliest: Time,
    /// The latest possible time; `Time(u64::MAX)` in the current epoch.
    pub latest: Time,
}

/// A heap block, live or recently freed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapBlock {
    /// Its address range, with the size that was requested.
    pub span: Span,
    /// The thread that allocated it; 0 if not known (beyond the table of threads).
    pub thread: ThreadId,
    /// When it was allocated.
    pub born: TimeBounds,
    /// When it was freed, if it was.
    pub freed: Option<TimeBounds>,
    /// Return addresses, innermost (the caller of `malloc`) first. Empty if
    /// the table of stacks was full.
    pub stack: Vec<CodeAddress>,
    /// The alignment that was requested for all blocks with this call stack; 1 if none was.
    pub alignment: u64,
}

/// What is known about the block that an address belonged to when its process was forked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// It belonged to this block.
    Block(HeapBlock),
    /// Other blocks have been there before or since, so it can't be told.
    Unknown,
    /// No block was ever recorded there.
    Never,
}

/// What happened to a block on a watched line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeapEventKind {
    /// It was allocated.
    Allocated,
    /// It was freed.
    Freed,
}

/// An allocation or a free of a block on a watched line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HeapEvent {
    /// Whether it is an allocation or a free.
    pub kind: HeapEventKind,
    /// The time: just after an allocation, just before a free.
    pub time: Time,
    /// The block.
    pub span: Span,
    /// The thread that allocated or freed it; 0 if not known.
    pub thread: ThreadId,
    /// The call stack of the allocation, innermost first; empty if not known.
    pub stack: Vec<CodeAddress>,
}

/// The shortest length of an epoch, in ns. The number of epochs is limited, so in a long run
/// later epochs are longer: 10 minutes at the tool's pace, then hours. Allocations and frees of
/// the blocks that matter are logged with exact times ([`Segment::watch_line`]).
const fn shortest_epoch(epoch: u32) -> u64 {
    match epoch {
        0..16_384 => 5_000_000,
        16_384..24_576 => 100_000_000,
        24_576..28_672 => 1_000_000_000,
        _ => 10_000_000_000,
    }
}

impl Segment {
    fn epoch(&self) -> u32 {
        hot_epoch(self.view().control().hot.load(Ordering::Acquire))
    }

    /// Begins a new epoch at `now`, if the current one has lasted long enough. To be called
    /// before samples are drained, because blocks are dated by epochs.
    pub fn advance_epoch(&self, now: Time) {
        let epoch = self.epoch();
        let times = self.view().epochs();
        let (Some(start), Some(next)) = (times.get(epoch as usize), times.get(epoch as usize + 1))
        else {
            return;
        };
        if now.0.saturating_sub(start.load(Ordering::Relaxed)) < shortest_epoch(epoch) {
            return;
        }
        next.store(now.0, Ordering::Relaxed);
        // If the runtime has begun an epoch at the same moment, that one suffices.
        let hot = &self.view().control().hot;
        let seen = hot.load(Ordering::Acquire);
        if hot_epoch(seen) == epoch {
            let new = seen.wrapping_add(HOT_NEXT_EPOCH);
            let _ = hot.compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed);
        }
    }

    fn bounds(&self, epoch: u32) -> TimeBounds {
        let times = self.view().epochs();
        let start = |epoch: u32| times.get(epoch as usize).map(|t| t.load(Ordering::Acquire));
        TimeBounds {
            earliest: Time(start(epoch).unwrap_or(0)),
            latest: Time(
                epoch
                    .checked_add(1)
                    .and_then(start)
                    .filter(|&t| t != 0 && epoch < self.epoch())
                    .unwrap_or(u64::MAX),
            ),
        }
    }

    fn tid(&self, index: u32) -> ThreadId {
        let record = self.view().threads().get(index as usize);
        ThreadId(record.map_or(0, |r| r.tid.load(Ordering::Acquire)))
    }

    fn frames(&self, stack: u32) -> Vec<CodeAddress> {
        let frames = self.view().stack(stack);
        frames.into_iter().map(CodeAddress).collect()
    }

    /// The block that `address` belongs to: the live one if there is one, else the one freed
    /// last. A block that has been replaced at its address by another one is not found, so
    /// compare the times.
    pub fn block_at(&self, address: Address) -> Option<HeapBlock> {
        let small = self.small_at(address);
        if small.as_ref().is_some_and(|b| b.freed.is_none()) {
            return small;
        }
        let large = self.large_block_at(address);
        match (small, large) {
            (Some(small), Some(large)) => {
                let end = |b: &HeapBlock| b.freed.map_or(Time(u64::MAX), |f| f.earliest);
                Some(if end(&large) >= end(&small) {
                    large
                } else {
                    small
                })
            }
            (small, large) => small.or(large),
        }
    }

    /// The block that `address` belonged to when a fork began the epoch `fork`; the new process
    /// has that block too.
    pub fn block_before(&self, address: Address, fork: u32) -> Inherited {
        let before = |start: u64, size: u64, thread: u32, stack: u32, born: u32| {
            Inherited::Block(HeapBlock {
                span: Span::new(Address(start), size),
                thread: self.tid(thread),
                born: self.bounds(born),
                freed: None,
                stack: self.frames(stack),
                alignment: self.view().alignment_of_stack(stack),
            })
        };
        if let Some((start, e)) = self.small_entry_at(address) {
            return match e.state() {
                EntryState::Live if e.epoch() < fork => {
                    before(start, e.size(), e.thread(), e.stack(), e.epoch())
                }
                // It was live at the end of an epoch before the one in which it was freed, and that
                // one began with the fork. So it is older than the fork.
                EntryState::FreedOld if e.epoch() == fork => {
                    before(start, e.size(), e.thread(), e.stack(), 0)
                }
                // The record of the block at the fork is overwritten, or this block may be younger.
                _ => Inherited::Unknown,
            };
        }
        match self.large_entry_at(address) {
            Some(b) if b.born < fork && b.freed.is_none_or(|end| end >= fork) => {
                before(b.start, b.size, b.thread, b.stack, b.born)
            }
            Some(_) => Inherited::Unknown,
            None => Inherited::Never,
        }
    }

    fn small_at(&self, address: Address) -> Option<HeapBlock> {
        let (start, entry) = self.small_entry_at(address)?;
        Some(self.small_block(start, entry))
    }

    /// The record and the start of the small block that holds `address`: the live one, else the
    /// one freed last.
    fn small_entry_at(&self, address: Address) -> Option<(u64, Entry)> {
        let mut freed: Option<(u64, Entry)> = None;
        let first = address.0.saturating_sub(MAX_SMALL) >> SLOT_SHIFT;
        for granule in (first..=address.0 >> SLOT_SHIFT).rev() {
            let base = granule << SLOT_SHIFT;
            let Some(slot) = self.view().find_slot(base) else {
                continue;
            };
            let entry = Entry(slot.load(Ordering::Acquire));
            let start = base + entry.offset();
            if entry.state() == EntryState::Empty || start > address.0 {
                continue;
            }
            let inside = address.0 - start < entry.size();
            if entry.is_live() {
                // Live blocks do not overlap, so no block that starts earlier can be live here.
                if inside {
                    return Some((start, entry));
                }
                break;
            }
            if inside && freed.is_none_or(|(_, kept)| entry.epoch() > kept.epoch()) {
                freed = Some((start, entry));
            }
        }
        freed
    }

    fn small_block(&self, start: u64, entry: Entry) -> HeapBlock {
        let bounds = self.bounds(entry.epoch());
        let (born, freed) = match entry.state() {
            EntryState::FreedYoung => (bounds, Some(bounds)),
            EntryState::FreedOld => (
                TimeBounds {
                    earliest: Time(0),
                    latest: bounds.earliest,
                },
                Some(bounds),
            ),
            EntryState::Live | EntryState::Empty => (bounds, None),
        };
        HeapBlock {
            span: Span::new(Address(start), entry.size()),
            thread: self.tid(entry.thread()),
            born,
            freed,
            stack: self.frames(entry.stack()),
            alignment: self.view().alignment_of_stack(entry.stack()),
        }
    }

    fn large_block_at(&self, address: Address) -> Option<HeapBlock> {
        let found = self.large_entry_at(address)?;
        Some(HeapBlock {
            span: Span::new(Address(found.start), found.size),
            thread: self.tid(found.thread),
            born: self.bounds(found.born),
            freed: found.freed.map(|epoch| self.bounds(epoch)),
            stack: self.frames(found.stack),
            alignment: self.view().alignment_of_stack(found.stack),
        })
    }

    fn large_entry_at(&self, address: Address) -> Option<LargeBlock> {
        let changes = self.view().status().large_changes.load(Ordering::Acquire);
        let mut snapshot = self.large_snapshot();
        if snapshot.changes != changes {
            let (freed, live): (Vec<_>, Vec<_>) = self
                .view()
                .large_blocks()
                .into_iter()
                .partition(|b| b.freed.is_some());
            snapshot.live = live.into_iter().map(|b| (b.start, b)).collect();
            snapshot.freed = freed;
            snapshot.changes = changes;
        }
        let inside = |b: &LargeBlock| address.0 >= b.start && address.0 - b.start < b.size;
        let live = snapshot.live.range(..=address.0).next_back();
        live.map(|(_, b)| *b).filter(inside).or_else(|| {
            let freed = snapshot.freed.iter().filter(|b| inside(b));
            freed.max_by_key(|b| b.freed).copied()
        })
    }

    /// From now on, allocations and frees of blocks that overlap the 64 bytes at `line` are
    /// logged. Watching a line twice has no effect; `false` if no more lines can be watched.
    pub fn watch_line(&self, line: Address) -> bool {
        let watch = self.view().watch();
        let line = line.0 & !63;
        let count = watch.count.load(Ordering::Relaxed) as usize;
        let known = watch.lines.get(..count.min(MAX_WATCHED));
        if known.is_some_and(|k| k.iter().any(|l| l.load(Ordering::Relaxed) == line)) {
            return true;
        }
        let Some(free) = watch.lines.get(count) else {
            return false;
        };
        free.store(line, Ordering::Relaxed);
        watch.count.store(count as u64 + 1, Ordering::Release);
        let (word, bit) = watch_bit(line);
        if let Some(word) = watch.filter.get(word) {
            word.fetch_or(bit, Ordering::Release);
        }
        let hot = &self.view().control().hot;
        hot.fetch_or(HOT_WATCHED, Ordering::Release);
        true
    }

    /// Passes the events on watched lines since the last call to `each`, in order for each
    /// thread.
    pub fn drain_heap_events(&self, each: &mut dyn FnMut(HeapEvent)) {
        let ring = self.view().events();
        for [time, start, size, thread_and_kind, stack] in ring.drain() {
            each(HeapEvent {
                kind: if thread_and_kind >> 32 == 0 {
                    HeapEventKind::Allocated
                } else {
                    HeapEventKind::Freed
                },
                time: Time(time),
                span: Span::new(Address(start), size),
                thread: self.tid(thread_and_kind as u32),
                stack: self.frames(stack as u32),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SegmentOptions;
    use crate::layout::MAX_EPOCHS;

    /// Writes what the runtime would write for a block.
    fn put(segment: &Segment, start: u64, entry: impl FnOnce(Entry) -> Entry) {
        let view = segment.view();
        let top = view.top(start);
        if top.load(Ordering::Relaxed) == 0 {
            let chunk = view.status().chunks.fetch_add(1, Ordering::Relaxed) + 1;
            top.store(chunk, Ordering::Relaxed);
        }
        let slot = view.find_slot(start).expect("chunk");
        slot.store(
            entry(Entry(slot.load(Ordering::Relaxed))).0,
            Ordering::Relaxed,
        );
    }

    fn start_at(segment: &Segment, address: u64) -> Option<u64> {
        segment.block_at(Address(address)).map(|b| b.span.start.0)
    }

    #[test]
    fn an_address_is_found_from_inside_and_not_from_outside() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        // Blocks on both sides of a chunk border.
        let border = 0x5555_5558_0000u64;
        for (start, size) in [(border - 0x4010, 0x4800), (border + 0x1000, 24)] {
            put(&segment, start, |_| Entry::live(start, size, 0, 0, 0));
        }
        assert_eq!(start_at(&segment, border - 0x4011), None);
        assert_eq!(start_at(&segment, border - 0x4010), Some(border - 0x4010));
        assert_eq!(start_at(&segment, border + 0x7ef), Some(border - 0x4010));
        assert_eq!(start_at(&segment, border + 0x7f0), None);
        assert_eq!(start_at(&segment, border + 0x1017), Some(border + 0x1000));
        assert_eq!(start_at(&segment, border + 0x1018), None);
        assert_eq!(start_at(&segment, u64::MAX), None);
        assert_eq!(start_at(&segment, 0), None);
    }

    /// The program writes the numbers of epochs, too.
    #[test]
    fn an_epoch_that_does_not_exist_has_no_bounds() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        for epoch in [u32::MAX, MAX_EPOCHS] {
            let bounds = segment.bounds(epoch);
            assert_eq!(bounds.earliest, Time(0), "{epoch}");
            assert_eq!(bounds.latest, Time(u64::MAX), "{epoch}");
        }
    }

    #[test]
    fn stale_entries_do_not_hide_the_live_block_around_them() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let base = 0x5555_0000_1010u64;
        put(&segment, base, |_| Entry::live(base, 32, 0, 0, 0).freed(0));
        put(&segment, base + 48, |_| {
            Entry::live(base + 48, 32, 0, 0, 0).freed(0)
        });
        assert_eq!(start_at(&segment, base + 50), Some(base + 48), "freed");
        put(&segment, base, |_| Entry::live(base, 1024, 0, 0, 0));
        assert_eq!(start_at(&segment, base + 50), Some(base), "live wins");
    }

    #[test]
    fn epochs_give_bounds_for_allocation_and_free_times() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let start = segment.view().epochs()[0].load(Ordering::Relaxed);
        let later = |ms: u64| Time(start + ms * 1_000_000);
        let a = 0x7f00_0000_1010u64;
        put(&segment, a, |_| Entry::live(a, 64, 0, 0, 0));
        let born = |s: &Segment| s.block_at(Address(a)).expect("there").born;
        assert_eq!(born(&segment).latest, Time(u64::MAX), "still running");
        segment.advance_epoch(later(1));
        assert_eq!(born(&segment).latest, Time(u64::MAX), "too soon");
        segment.advance_epoch(later(100));
        assert_eq!(
            born(&segment),
            TimeBounds {
                earliest: later(0),
                latest: later(100)
            }
        );
        put(&segment, a, |e| e.freed(1));
        segment.advance_epoch(later(200));
        let block = segment.block_at(Address(a)).expect("freed but known");
        assert_eq!(
            block.freed,
            Some(TimeBounds {
                earliest: later(100),
                latest: later(200)
            })
        );
        assert_eq!(block.born.latest, later(100));
    }

    #[test]
    fn epochs_never_run_out() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        let start = segment.view().epochs()[0].load(Ordering::Relaxed);
        for i in 1..=(2 * u64::from(MAX_EPOCHS)) {
            segment.advance_epoch(Time(start + i * 20_000_000_000));
        }
        assert_eq!(segment.epoch(), MAX_EPOCHS - 1);
    }

    #[test]
    fn the_number_of_watched_lines_is_limited() {
        let segment = Segment::create(&SegmentOptions::default()).expect("memory file");
        for i in 0..MAX_WATCHED as u64 {
            assert!(segment.watch_line(Address(0x1000 + i * 64)));
        }
        assert!(segment.watch_line(Address(0x1000)), "known already");
        assert!(!segment.watch_line(Address(0x10)));
    }
}
