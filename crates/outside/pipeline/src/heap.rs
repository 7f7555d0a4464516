//! The heap of one process image: its own records and, for a forked child, those of the image
//! that it was forked from. Used by `process`; it must not know verdicts or names.

use crate::blocks::{FreedBlock, HeapBlocks, OwnerChange};
use std::rc::Rc;
use sunder_access::{Address, ProcessId, Span, Time};
use sunder_objects as objects;
use sunder_wire::{HeapBlock, HeapEventKind, Inherited, Segment};

/// The heap of one process image.
pub struct Heap {
    /// The segment with its own records.
    pub segment: Rc<Segment>,
    /// The process.
    pub process: ProcessId,
    /// When its records begin.
    pub since: Time,
    /// The heap that it was forked from, and the epoch of that heap in which the fork began.
    origin: Option<(Rc<Heap>, u32)>,
}

impl Heap {
    /// The heap that `process` has recorded in `segment` since `since`.
    pub const fn new(
        segment: Rc<Segment>,
        process: ProcessId,
        since: Time,
        origin: Option<(Rc<Self>, u32)>,
    ) -> Self {
        Self {
            segment,
            process,
            since,
            origin,
        }
    }

    /// The block that held `address` before the fork. Ask it only if this image's own segment
    /// has no block there.
    pub fn inherited(&self, address: Address) -> Option<HeapBlock> {
        let (mut heap, mut fork) = self.origin.as_ref().map(|(h, e)| (h, *e))?;
        loop {
            match heap.segment.block_before(address, fork) {
                Inherited::Block(block) => return Some(block),
                Inherited::Unknown => return None,
                Inherited::Never => {
                    (heap, fork) = heap.origin.as_ref().map(|(h, e)| (h, *e))?;
                }
            }
        }
    }
}

/// The heap blocks that the runtime in a live process records.
pub struct SegmentBlocks {
    heap: Rc<Heap>,
    /// Blocks from before a fork, copied when their lines became suspects: the records that
    /// they come from go on changing.
    inherited: Vec<HeapBlock>,
}

impl SegmentBlocks {
    /// The blocks of `heap`.
    pub const fn new(heap: Rc<Heap>) -> Self {
        Self {
            heap,
            inherited: Vec::new(),
        }
    }
}

impl HeapBlocks for SegmentBlocks {
    fn block_at(&self, address: Address) -> Option<objects::HeapBlock> {
        let inherited = || {
            let kept = self.inherited.iter().find(|b| b.span.contains(address));
            kept.cloned().or_else(|| self.heap.inherited(address))
        };
        let block = self.heap.segment.block_at(address).or_else(inherited)?;
        Some(objects::HeapBlock {
            span: block.span,
            allocation: block.stack,
            thread: (block.thread.0 != 0).then_some(block.thread),
            freed: block.freed.is_some(),
        })
    }

    fn watch(&mut self, line: Span, since: Time, each: &mut dyn FnMut(OwnerChange)) {
        let heap = &self.heap;
        heap.segment.watch_line(line.start);
        let (mut at, end) = (line.start, line.end().0);
        while at.0 < end {
            let mut next = at.0 + 8;
            if let Some(block) = heap.segment.block_at(at) {
                if block.freed.is_none() && block.born.earliest > since {
                    each(OwnerChange {
                        span: block.span,
                        time: block.born.earliest,
                        freed: None,
                    });
                }
                next = next.max(block.span.end().0);
            } else if let Some(block) = heap.inherited(at) {
                next = next.max(block.span.end().0);
                self.inherited.push(block);
            }
            at = Address(next);
        }
    }

    fn changes(&mut self, each: &mut dyn FnMut(OwnerChange)) {
        self.heap.segment.drain_heap_events(&mut |event| {
            let freed = match event.kind {
                HeapEventKind::Allocated => None,
                HeapEventKind::Freed => Some(FreedBlock {
                    block: objects::HeapBlock {
                        span: event.span,
                        allocation: event.stack,
                        thread: None,
                        freed: true,
                    },
                    moved: None,
                }),
            };
            each(OwnerChange {
                span: event.span,
                time: event.time,
                freed,
            });
        });
    }
}
