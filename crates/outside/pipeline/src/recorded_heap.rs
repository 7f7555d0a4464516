//! The heap that a trace describes: the block that holds an address now, or held it last. It is
//! fed in the order of time. If a replay moved objects, it is asked by their addresses in the
//! replay and answers with the recorded ones.

use crate::shape::Shape;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use sunder_access::{Address, CodeAddress, Span, ThreadId};
use sunder_objects::HeapBlock;

/// The heap of a trace.
#[derive(Debug, Default)]
pub struct RecordedHeap {
    blocks: BTreeMap<u64, Block>,
    stacks: HashMap<u32, Vec<CodeAddress>>,
    /// Variables that the replay moved.
    variables: Vec<Home>,
}

/// A block or variable, as recorded and as a replay places it.
#[derive(Clone, Debug)]
pub struct Moved {
    /// Its recorded bytes.
    pub from: Span,
    /// All bytes that it takes in the replay.
    pub to: Span,
    /// The arrangement of its bytes there; `None` if unchanged.
    pub shape: Option<Arc<Shape>>,
}

#[derive(Clone, Debug)]
struct Block {
    home: Home,
    stack: u32,
    thread: ThreadId,
    freed: bool,
}

/// Maps an object's addresses in the replay to the recorded ones.
#[derive(Clone, Debug)]
pub struct Home {
    at: Span,
    from: Span,
    shape: Option<Arc<Shape>>,
}

impl Home {
    /// The recorded address of the byte at `address`, if the object holds it.
    pub fn origin(&self, address: Address) -> Option<Address> {
        if !self.at.contains(address) {
            return None;
        }
        let offset = address.0 - self.at.start.0;
        let offset = match &self.shape {
            Some(shape) => shape.original(offset),
            None => offset,
        };
        // Bytes that the object gained map to its last byte.
        let last = self.from.len.saturating_sub(1);
        Some(Address(self.from.start.0 + offset.min(last)))
    }
}

impl From<Moved> for Home {
    fn from(moved: Moved) -> Self {
        Self {
            at: moved.to,
            from: moved.from,
            shape: moved.shape,
        }
    }
}

impl RecordedHeap {
    /// An empty heap; `stacks` are the call stacks of its future blocks, by number.
    pub fn new(stacks: HashMap<u32, Vec<CodeAddress>>) -> Self {
        Self {
            blocks: BTreeMap::new(),
            stacks,
            variables: Vec::new(),
        }
    }

    /// Sets the variables that the replay moves.
    pub fn set_variables(&mut self, variables: Vec<Moved>) {
        self.variables = variables.into_iter().map(Home::from).collect();
    }

    /// Adds a block. Older blocks that overlap it are forgotten.
    pub fn allocated(&mut self, block: Moved, stack: u32, thread: ThreadId) {
        let span = Span::new(block.to.start, block.to.len.max(1));
        let over: Vec<u64> = self
            .blocks
            .range(..span.end().0)
            .rev()
            .take_while(|(_, block)| block.home.at.end().0 > span.start.0)
            .map(|(&start, _)| start)
            .collect();
        for start in over {
            self.blocks.remove(&start);
        }
        let mut home = Home::from(block);
        home.at = span;
        home.from.len = home.from.len.max(1);
        let block = Block {
            home,
            stack,
            thread,
            freed: false,
        };
        self.blocks.insert(span.start.0, block);
    }

    /// Marks the block at `start` as freed. It is known until another overlaps it.
    pub fn freed(&mut self, start: Address) -> Option<Span> {
        let block = self.blocks.get_mut(&start.0)?;
        block.freed = true;
        Some(block.home.at)
    }

    fn at(&self, address: Address) -> Option<&Block> {
        let (_, block) = self.blocks.range(..=address.0).next_back()?;
        block.home.at.contains(address).then_some(block)
    }

    /// The block that holds `address` now or held it last, as it was recorded.
    pub fn block_at(&self, address: Address) -> Option<HeapBlock> {
        let block = self.at(address)?;
        Some(HeapBlock {
            span: block.home.from,
            allocation: self.stacks.get(&block.stack).cloned().unwrap_or_default(),
            thread: Some(block.thread),
            freed: block.freed,
        })
    }

    /// The block or variable that holds `address` in the replay.
    pub fn home(&self, address: Address) -> Option<&Home> {
        let variable = self.variables.iter().find(|v| v.at.contains(address));
        variable.or_else(|| Some(&self.at(address)?.home))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        heap.allocated(still(0x100, 32), 1, ThreadId(7));
        heap.allocated(still(0x120, 32), 2, ThreadId(7));
        assert_eq!(heap.freed(Address(0x100)), Some(span(0x100, 32)));
        let at = |heap: &RecordedHeap, a| heap.block_at(Address(a)).map(|b| b.allocation[0].0);
        assert_eq!(at(&heap, 0x11f), Some(1));
        assert!(heap.block_at(Address(0x100)).is_some_and(|b| b.freed));
        // A larger block that overlaps both.
        heap.allocated(still(0x110, 64), 3, ThreadId(8));
        assert_eq!(at(&heap, 0x11f), Some(3));
        assert_eq!(at(&heap, 0x105), None);
        assert_eq!(at(&heap, 0x14f), Some(3));
        assert_eq!(at(&heap, 0x150), None);
        assert_eq!(heap.freed(Address(0x120)), None);
    }

    #[test]
    fn a_block_that_moved_is_told_as_it_was_recorded() {
        let mut heap = RecordedHeap::new(HashMap::new());
        // Two longs, the second of which gets a line of its own.
        let shape = Shape::fields(16, std::slice::from_ref(&(8..16)), 64);
        let moved = Moved {
            from: span(0x1010, 16),
            to: span(0x4000, 128),
            shape: Some(Arc::new(shape)),
        };
        heap.allocated(moved, 1, ThreadId(7));
        let block = heap.block_at(Address(0x4040)).map(|b| b.span);
        assert_eq!(block, Some(span(0x1010, 16)));
        let origin = |at| heap.home(Address(at)).and_then(|h| h.origin(Address(at)));
        assert_eq!(origin(0x4004), Some(Address(0x1014)));
        assert_eq!(origin(0x4044), Some(Address(0x101c)));
        assert_eq!(origin(0x1014), None);
    }
}
