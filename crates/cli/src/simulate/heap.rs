//! The heap as a trace tells it: which block holds an address now, or held it
//! last. Fed in the order of time.

use std::collections::{BTreeMap, HashMap};
use sunder_access::{Address, CodeAddress, Span, ThreadId};
use sunder_objects::HeapBlock;

/// See the module's head.
#[derive(Debug, Default)]
pub struct RecordedHeap {
    blocks: BTreeMap<u64, Block>,
    stacks: HashMap<u32, Vec<CodeAddress>>,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    span: Span,
    stack: u32,
    thread: ThreadId,
    freed: bool,
}

impl RecordedHeap {
    /// An empty heap whose blocks will have come from these call stacks.
    pub fn new(stacks: HashMap<u32, Vec<CodeAddress>>) -> Self {
        Self {
            blocks: BTreeMap::new(),
            stacks,
        }
    }

    /// A block was allocated. What lay there before is forgotten.
    pub fn allocated(&mut self, span: Span, stack: u32, thread: ThreadId) {
        let over: Vec<u64> = self
            .blocks
            .range(..span.end().0)
            .rev()
            .take_while(|(_, block)| block.span.end().0 > span.start.0)
            .map(|(&start, _)| start)
            .collect();
        for start in over {
            self.blocks.remove(&start);
        }
        let block = Block {
            span,
            stack,
            thread,
            freed: false,
        };
        self.blocks.insert(span.start.0, block);
    }

    /// The block at `start` was freed; known until another takes its place.
    pub fn freed(&mut self, start: Address) -> Option<Span> {
        let block = self.blocks.get_mut(&start.0)?;
        block.freed = true;
        Some(block.span)
    }

    /// The block that holds `address`, or held it last.
    pub fn block_at(&self, address: Address) -> Option<HeapBlock> {
        let (_, block) = self.blocks.range(..=address.0).next_back()?;
        block.span.contains(address).then(|| HeapBlock {
            span: block.span,
            allocation: self.stacks.get(&block.stack).cloned().unwrap_or_default(),
            thread: Some(block.thread),
            freed: block.freed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn span(start: u64, len: u64) -> Span {
        Span::new(Address(start), len)
    }

    #[test]
    fn a_block_is_known_until_another_takes_its_place() {
        let stacks = (1..=3).map(|n| (n, vec![CodeAddress(u64::from(n))]));
        let mut heap = RecordedHeap::new(stacks.collect());
        heap.allocated(span(0x100, 32), 1, ThreadId(7));
        heap.allocated(span(0x120, 32), 2, ThreadId(7));
        assert_eq!(heap.freed(Address(0x100)), Some(span(0x100, 32)));
        let at = |heap: &RecordedHeap, a| heap.block_at(Address(a)).map(|b| b.allocation[0].0);
        assert_eq!(at(&heap, 0x11f), Some(1));
        assert!(heap.block_at(Address(0x100)).is_some_and(|b| b.freed));
        // A larger one over both.
        heap.allocated(span(0x110, 64), 3, ThreadId(8));
        assert_eq!(at(&heap, 0x11f), Some(3));
        assert_eq!(at(&heap, 0x105), None);
        assert_eq!(at(&heap, 0x14f), Some(3));
        assert_eq!(at(&heap, 0x150), None);
        assert_eq!(heap.freed(Address(0x120)), None);
    }
}
