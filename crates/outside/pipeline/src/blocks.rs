//! Where the records of a process's heap blocks come from: the segment that the runtime in a
//! live process writes (`heap`), or a trace (`recorded_heap`). `process` asks both in the same
//! way, and reports their changes of owners to the judge in the same way.

use crate::moved::Moved;
use sunder_access::{Address, Span, Time};
use sunder_objects::HeapBlock;

/// A source of records about the heap blocks of one process.
pub trait HeapBlocks {
    /// The block that holds `address` now or held it last, as it was recorded.
    fn block_at(&self, address: Address) -> Option<HeapBlock>;

    /// The recorded address of the byte at `address`, if a replay moved the object there.
    fn origin(&self, _address: Address) -> Option<Address> {
        None
    }

    /// From now on the blocks on `line` matter, which was first accessed at `since`: their
    /// changes are recorded, and `each` gets the present owners that came after `since`. A
    /// trace has the changes of all lines.
    fn watch(&mut self, _line: Span, _since: Time, _each: &mut dyn FnMut(OwnerChange)) {}

    /// Passes the changes of owners since the last call to `each`, in the order of time for
    /// each thread.
    fn changes(&mut self, each: &mut dyn FnMut(OwnerChange));
}

/// Memory got another owner. Earlier accesses to it belong to the owner before.
#[derive(Clone, Debug)]
pub struct OwnerChange {
    /// The memory.
    pub span: Span,
    /// When it changed its owner.
    pub time: Time,
    /// The block that it held until then; `None` if it was allocated now.
    pub freed: Option<FreedBlock>,
}

/// A block that was freed after accesses to it were judged.
#[derive(Clone, Debug)]
pub struct FreedBlock {
    /// The block, as it was recorded.
    pub block: HeapBlock,
    /// Where it lay in a replay; `None` for a live process.
    pub moved: Option<Moved>,
}

impl FreedBlock {
    /// Whether it held `address`.
    pub fn held(&self, address: Address) -> bool {
        match &self.moved {
            Some(moved) => moved.origin(address).is_some(),
            None => self.block.span.contains(address),
        }
    }
}
