//! Whose memory an address was: the heap's blocks, those that were freed while their line was
//! watched, and what the names need to know of an address.

use super::{Figures, Process};
use crate::blocks::{FreedBlock, HeapBlocks, OwnerChange};
use crate::kept::kept_owner_change;
use sunder_access::{Address, Granule, Span, Time};
use sunder_objects::{HeapBlock, ObjectContext};
use sunder_recording::Step;
use sunder_sharing::Judge;
use sunder_wire::TimeBounds;

/// The owner tag of memory whose earlier owner is not known.
const OWNER_NONE: u64 = 0;

/// Whether a block that was `born` then took the place of what was used from `first` to `last`. Only the
/// epoch of its birth is known. If memory was used before that epoch, it held something else then, and
/// unless the block was surely born before the last use, that is what the uses were of: a program frees
/// what its threads have shared, and gets the memory again for its output buffer.
fn came_later(born: &TimeBounds, (first, last): (Time, Time)) -> bool {
    born.earliest > last || first < born.earliest && last < born.latest
}

/// Whether a block that was `freed` then had gone when its memory was used from `first` to `last`: the
/// allocator gave the memory back to the kernel, and something else was mapped there. Only the epoch
/// is known here, too; if the first use was in it, a later one decides.
fn had_gone(freed: &TimeBounds, (first, last): (Time, Time)) -> bool {
    freed.latest <= first || freed.earliest <= first && freed.latest < last
}

impl Process {
    /// From now on the allocations and frees on `line` are reported, which was first accessed
    /// at `since`. Accesses from before the present block was allocated belonged to another
    /// owner.
    pub fn watch_line(&mut self, line: Address, since: Time, granule: Granule) {
        if self.blocks.is_none() || !self.watched.insert(line) {
            return;
        }
        let line = Span::new(line, granule.bytes());
        self.retire(|blocks, each| blocks.watch(line, since, each));
        // A short program may end before its mappings are read the next time.
        self.read_thread_locals();
    }

    /// Takes the heap events that have come since the last call.
    pub fn heap_events(&mut self) {
        self.retire(|blocks, each| blocks.changes(each));
    }

    /// Retires the earlier accesses to memory whose owner changes, for each change that `ask`
    /// has the source of the blocks report.
    fn retire(&mut self, ask: impl FnOnce(&mut dyn HeapBlocks, &mut dyn FnMut(OwnerChange))) {
        let Some(blocks) = &mut self.blocks else {
            return;
        };
        let mut changes = Vec::new();
        ask(&mut **blocks, &mut |change| changes.push(change));
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !changes.is_empty()) {
            recorder.add(&Step::Owners {
                process: self.id.0,
                changes: changes.iter().map(kept_owner_change).collect(),
            });
        }
        self.owners_changed(changes);
    }

    /// Retires the earlier accesses to memory whose owner changed.
    pub fn owners_changed(&mut self, changes: Vec<OwnerChange>) {
        for change in changes {
            let owner = match change.freed {
                Some(block) => {
                    self.freed.push(block);
                    self.freed.len() as u64
                }
                None => OWNER_NONE,
            };
            self.judge.retire(change.span, change.time, owner);
        }
    }

    /// Takes over what was found before, in parts: the judge, whose owner tags are numbers of `freed`
    /// from 1, and the figures.
    pub fn restore(&mut self, judge: Judge, freed: Vec<FreedBlock>, figures: Figures) {
        for time in judge.thread_time() {
            self.threads.started(time.thread);
        }
        (self.judge, self.freed, self.figures) = (judge, freed, figures);
    }

    /// The freed block that the judge's `owner` tag stands for.
    fn freed_block(&self, owner: Option<u64>) -> Option<&FreedBlock> {
        let owner = usize::try_from(owner?).ok()?;
        self.freed.get(owner.checked_sub(1)?)
    }

    /// The recorded address of the byte that lies at `address` in a replay; `address` itself if
    /// it was not moved.
    pub fn origin(&self, address: Address, owner: Option<u64>) -> Address {
        let freed = self.freed_block(owner);
        let moved = freed.and_then(|freed| freed.moved.as_ref());
        moved
            .and_then(|moved| moved.origin(address))
            .or_else(|| self.blocks.as_ref()?.origin(address))
            .unwrap_or(address)
    }

    /// The heap block that held `address`: a freed one if the judge's `owner` says so, else the
    /// present one. In a replay, `address` is the address there, and the block is returned as
    /// it was recorded.
    pub fn block_at(&self, address: Address, owner: Option<u64>) -> Option<HeapBlock> {
        match self.freed_block(owner).filter(|freed| freed.held(address)) {
            Some(freed) => Some(freed.block.clone()),
            None => self.blocks.as_ref()?.block_at(address),
        }
    }

    /// The facts that the names need about `address`.
    pub fn context(&self, address: Address, owner: Option<u64>) -> ObjectContext {
        ObjectContext {
            heap: self.block_at(address, owner),
            stacks: self.stacks(),
            thread_pointers: self.thread_pointers(),
            frames: self.frames(address),
            touched_by: Vec::new(),
        }
    }

    /// The same, of an address that was used from the first to the second of `used`: a block that was
    /// allocated there later, or freed before, was not used.
    pub fn context_in(
        &self,
        address: Address,
        owner: Option<u64>,
        used: (Time, Time),
    ) -> ObjectContext {
        let mut context = self.context(address, owner);
        let block = self.heap.as_ref().and_then(|h| h.segment.block_at(address));
        let is_anothers = block.is_some_and(|block| {
            let had_gone = block.freed.is_some_and(|freed| had_gone(&freed, used));
            had_gone || came_later(&block.born, used)
        });
        if is_anothers && self.freed_block(owner).is_none() {
            context.heap = None;
        }
        context
    }

    /// The alignment at which every heap block like the one at `span` starts: what the program
    /// requested, and at least what `malloc` promises for its size (glibc's manual, section 3.2.3.6:
    /// 16 bytes on 64-bit systems; allocators that give less do so for blocks below 16 bytes only).
    pub fn alignment_of(&self, span: Span) -> u64 {
        let heap = self.heap.as_ref();
        let block = heap.and_then(|heap| heap.segment.block_at(span.start));
        let requested = block.filter(|block| block.span.start == span.start);
        let usual = if span.len < 16 { 8 } else { 16 };
        requested.map_or(1, |block| block.alignment).max(usual)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_that_may_have_come_after_the_last_use_of_its_memory_was_not_used() {
        let born = |earliest, latest| TimeBounds {
            earliest: Time(earliest),
            latest: Time(latest),
        };
        let used = |first, last| (Time(first), Time(last));
        let now = u64::MAX;
        // It was there all the time, or came when its epoch began.
        assert!(!came_later(&born(10, 20), used(25, 90)));
        assert!(!came_later(&born(10, now), used(10, 90)));
        // Something else was used first, and it after that.
        assert!(!came_later(&born(50, 60), used(10, 90)));
        // It came when all use was over.
        assert!(came_later(&born(95, now), used(10, 90)));
        // Perhaps it did.
        assert!(came_later(&born(85, now), used(10, 90)));
        assert!(came_later(&born(85, 95), used(10, 90)));
    }

    #[test]
    fn a_block_that_was_freed_before_its_memory_was_used_was_not_used() {
        let freed = |earliest, latest| TimeBounds {
            earliest: Time(earliest),
            latest: Time(latest),
        };
        let used = |first, last| (Time(first), Time(last));
        assert!(had_gone(&freed(5, 10), used(10, 90)));
        // It may have been freed after the first use, but before the last.
        assert!(had_gone(&freed(5, 15), used(10, 90)));
        // It was used until it was freed, perhaps.
        assert!(!had_gone(&freed(85, 95), used(10, 90)));
        assert!(!had_gone(&freed(50, 60), used(10, 90)));
        assert!(!had_gone(&freed(5, 95), used(10, 90)));
    }
}
