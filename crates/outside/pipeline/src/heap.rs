//! The heap of one process image: its own records and, for a forked child, what
//! it has from the image that it was forked from. Used by `process`; knows
//! nothing of verdicts or names.

use std::rc::Rc;
use sunder_access::{Address, ProcessId, Time};
use sunder_wire::{HeapBlock, Inherited, Segment};

/// See the module's head.
pub struct Heap {
    /// Its own records.
    pub segment: Rc<Segment>,
    /// Whose it is.
    pub process: ProcessId,
    /// Since when.
    pub since: Time,
    /// The heap that it was forked from, and the epoch there that the fork began.
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

    /// The block that `address` belonged to before the fork. What the segment of
    /// this image itself says of the address comes first.
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
