//! The heap of one process image: its own records and, for a forked child, those of the image
//! that it was forked from. Used by `process`; it must not know verdicts or names.

use std::rc::Rc;
use sunder_access::{Address, ProcessId, Time};
use sunder_wire::{HeapBlock, Inherited, Segment};

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
