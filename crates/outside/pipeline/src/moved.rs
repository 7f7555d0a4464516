//! Where a replay places an object, and back: the recorded address of each of its bytes. Filled
//! by `replay` and `recorded_heap`; used to name what is seen at an address of the replay.

use crate::shape::Shape;
use std::sync::Arc;
use sunder_access::{Address, Span};

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

impl Moved {
    /// The recorded address of the byte that lies at `address` in the replay, if the object holds
    /// it.
    pub fn origin(&self, address: Address) -> Option<Address> {
        if !self.to.contains(address) {
            return None;
        }
        let offset = address.0 - self.to.start.0;
        let offset = match &self.shape {
            Some(shape) => shape.original(offset),
            None => offset,
        };
        // Bytes that the object gained map to its last byte.
        let last = self.from.len.saturating_sub(1);
        Some(Address(self.from.start.0 + offset.min(last)))
    }
}
