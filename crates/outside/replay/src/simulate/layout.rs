//! Where objects are to lie in a replay: an allocation policy for the heap, and
//! changes to single objects. Resolved from names once (`resolve`), then read by
//! any number of replays side by side.

use std::collections::HashMap;
use std::sync::Arc;
use sunder_access::{PAGE, Span};
use sunder_pipeline::Shape;
use sunder_placement::{CallSite, Policy};

/// The number of what a replay counts for itself: an object that it is asked about; 0
/// for all else.
pub type Subject = u16;

/// See the module's head.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The policy that places all heap objects; none: they stay where they were.
    pub policy: Option<Policy>,
    /// Blocks that change, by call stack and size.
    pub blocks: HashMap<(u32, u64), Arc<Shape>>,
    /// Variables that change.
    pub statics: Vec<(Span, Arc<Shape>)>,
    /// Where blocks were asked for, by call stack.
    pub origins: Arc<HashMap<u32, Origin>>,
    /// What blocks are counted as, by call stack and size.
    pub subjects: HashMap<(u32, u64), Subject>,
    /// What variables are counted as, none over another.
    pub static_subjects: Vec<(Span, Subject)>,
    /// The changes in words, as on the command line.
    pub changes: Vec<String>,
}

/// Where blocks were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The innermost call that is not `operator new`.
    pub site: CallSite,
    /// For blocks of traces that do not tell which alignment was asked for: what their
    /// addresses tell; 1 if nothing.
    pub align: u64,
}

impl Layout {
    /// Whether all objects stay where they were.
    pub fn is_actual(&self) -> bool {
        self.policy.is_none() && self.blocks.is_empty() && self.statics.is_empty()
    }

    /// Whether it counts nothing for itself.
    pub fn is_uncounted(&self) -> bool {
        self.subjects.is_empty() && self.static_subjects.is_empty()
    }

    /// Its name in reports.
    pub const fn policy_name(&self) -> &'static str {
        match self.policy {
            None => "actual",
            Some(policy) => policy.name(),
        }
    }

    /// Where call stack `stack` asked for its blocks.
    pub fn origin(&self, stack: u32) -> Origin {
        self.origins.get(&stack).copied().unwrap_or_default()
    }

    /// What a block of `size` bytes from call stack `stack` is counted as.
    pub fn subject(&self, stack: u32, size: u64) -> Subject {
        if self.subjects.is_empty() {
            return 0;
        }
        self.subjects.get(&(stack, size)).copied().unwrap_or(0)
    }

    /// The shape of a block of `size` bytes from call stack `stack`, if it changes.
    pub fn block(&self, stack: u32, size: u64) -> Option<&Arc<Shape>> {
        if self.blocks.is_empty() {
            return None;
        }
        self.blocks.get(&(stack, size))
    }
}

/// The page size for granules of `granule` bytes.
pub const fn page_for(granule: u64) -> u64 {
    if granule > PAGE { granule } else { PAGE }
}
