//! The heap that a trace describes: the block that holds an address now, or held it last. It is
//! fed in the order of time by the pass over the trace, which shares it with the process. If a
//! replay moved objects, it is asked by their addresses in the replay and answers with the
//! recorded ones.

use crate::blocks::{FreedBlock, HeapBlocks, OwnerChange};
use crate::moved::Moved;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use sunder_access::{Address, CodeAddress, Span, ThreadId, Time};
use sunder_objects::HeapBlock;

/// The heap of a trace.
#[derive(Debug, Default)]
pub struct RecordedHeap {
    blocks: BTreeMap<u64, Block>,
    stacks: HashMap<u32, Vec<CodeAddress>>,
    /// Variables that the replay moved.
    variables: Vec<Moved>,
    /// Changes of owners that have not been passed on.
    changes: Vec<OwnerChange>,
}

#[derive(Clone, Debug)]
struct Block {
    moved: Moved,
    stack: u32,
    thread: ThreadId,
    freed: bool,
}

impl RecordedHeap {
    /// An empty heap; `stacks` are the call stacks of its future blocks, by number.
    pub fn new(stacks: HashMap<u32, Vec<CodeAddress>>) -> Self {
        Self {
            blocks: BTreeMap::new(),
            stacks,
            variables: Vec::new(),
            changes: Vec::new(),
        }
    }

    /// Sets the variables that the replay moves.
    pub fn set_variables(&mut self, variables: Vec<Moved>) {
        self.variables = variables;
    }

    /// Adds a block that `thread` allocated. Older blocks that overlap it are forgotten.
    /// `judged` is the time of the allocation if accesses to this memory were judged before,
    /// and `None` otherwise.
    pub fn allocated(&mut self, block: Moved, stack: u32, thread: ThreadId, judged: Option<Time>) {
        let span = Span::new(block.to.start, block.to.len.max(1));
        self.changes.extend(judged.map(|time| OwnerChange {
            span,
            time,
            freed: None,
        }));
        let over: Vec<u64> = self
            .blocks
            .range(..span.end().0)
            .rev()
            .take_while(|(_, block)| block.moved.to.end().0 > span.start.0)
            .map(|(&start, _)| start)
            .collect();
        for start in over {
            self.blocks.remove(&start);
        }
        let mut moved = block;
        moved.to = span;
        moved.from.len = moved.from.len.max(1);
        let block = Block {
            moved,
            stack,
            thread,
            freed: false,
        };
        self.blocks.insert(span.start.0, block);
    }

    /// Marks the block at `start` as freed. It is known until another overlaps it. `judged`
    /// tells of its bytes in the replay whether accesses to them were judged; these bytes are
    /// returned.
    pub fn freed(
        &mut self,
        start: Address,
        time: Time,
        judged: impl Fn(Span) -> bool,
    ) -> Option<Span> {
        // A second free of a block is a mistake of the program or of its recording.
        let block = self.blocks.get_mut(&start.0).filter(|block| !block.freed)?;
        block.freed = true;
        let span = block.moved.to;
        if judged(span) {
            let moved = Some(block.moved.clone());
            let block = self.block_at(start)?;
            self.changes.push(OwnerChange {
                span,
                time,
                freed: Some(FreedBlock { block, moved }),
            });
        }
        Some(span)
    }

    /// Forgets the block at `start`, of whose bytes another block took some.
    pub fn replaced(&mut self, start: Address) {
        self.blocks.remove(&start.0);
    }

    fn at(&self, address: Address) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=address.0).next_back()?;
        block.moved.to.contains(address).then_some(block)
    }

    /// The block that holds `address` now or held it last, as it was recorded.
    pub fn block_at(&self, address: Address) -> Option<HeapBlock> {
        let block = self.at(address)?;
        Some(HeapBlock {
            span: block.moved.from,
            allocation: self.stacks.get(&block.stack).cloned().unwrap_or_default(),
            thread: Some(block.thread),
            freed: block.freed,
        })
    }

    /// The block or variable that holds `address` in the replay.
    pub fn moved(&self, address: Address) -> Option<&Moved> {
        let variable = self.variables.iter().find(|v| v.to.contains(address));
        variable.or_else(|| Some(&self.at(address)?.moved))
    }
}

impl HeapBlocks for Rc<RefCell<RecordedHeap>> {
    fn block_at(&self, address: Address) -> Option<HeapBlock> {
        self.borrow().block_at(address)
    }

    fn origin(&self, address: Address) -> Option<Address> {
        self.borrow().moved(address)?.origin(address)
    }

    fn changes(&mut self, each: &mut dyn FnMut(OwnerChange)) {
        self.borrow_mut().changes.drain(..).for_each(each);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::Shape;
    use std::sync::Arc;

    fn span(start: u64, len: u64) -> Span {
        Span::new(Address(start), len)
    }

    fn still(start: u64, len: u64) -> Moved {
        Moved {
            from: span(start, len),
            to: span(start, len),
            shape: None,
        }
    }

    #[test]
    fn a_block_is_known_until_another_takes_its_place() {
        let stacks = (1..=3).map(|n| (n, vec![CodeAddress(u64::from(n))]));
        let mut heap = RecordedHeap::new(stacks.collect());
        heap.allocated(still(0x100, 32), 1, ThreadId(7), None);
        heap.allocated(still(0x120, 32), 2, ThreadId(7), None);
        assert_eq!(
            heap.freed(Address(0x100), Time(0), |_| false),
            Some(span(0x100, 32))
        );
        let at = |heap: &RecordedHeap, a| heap.block_at(Address(a)).map(|b| b.allocation[0].0);
        assert_eq!(at(&heap, 0x11f), Some(1));
        assert!(heap.block_at(Address(0x100)).is_some_and(|b| b.freed));
        // A larger block that overlaps both.
        heap.allocated(still(0x110, 64), 3, ThreadId(8), None);
        assert_eq!(at(&heap, 0x11f), Some(3));
        assert_eq!(at(&heap, 0x105), None);
        assert_eq!(at(&heap, 0x14f), Some(3));
        assert_eq!(at(&heap, 0x150), None);
        assert_eq!(heap.freed(Address(0x120), Time(0), |_| false), None);
    }

    #[test]
    fn a_moved_block_is_returned_as_it_was_recorded() {
        let mut heap = RecordedHeap::new(HashMap::new());
        // Two longs, the second of which gets a line of its own.
        let shape = Shape::fields(16, std::slice::from_ref(&(8..16)), 64);
        let moved = Moved {
            from: span(0x1010, 16),
            to: span(0x4000, 128),
            shape: Some(Arc::new(shape)),
        };
        heap.allocated(moved, 1, ThreadId(7), None);
        let block = heap.block_at(Address(0x4040)).map(|b| b.span);
        assert_eq!(block, Some(span(0x1010, 16)));
        let origin = |at| heap.moved(Address(at)).and_then(|h| h.origin(Address(at)));
        assert_eq!(origin(0x4004), Some(Address(0x1014)));
        assert_eq!(origin(0x4044), Some(Address(0x101c)));
        assert_eq!(origin(0x1014), None);
    }
}
