//! Where objects lie in a replay: an allocation policy for the heap, and changes to single
//! objects. `resolve` makes it from names once; then any number of replays read it at the same
//! time.

use std::collections::HashMap;
use std::sync::Arc;
use sunder_access::{PAGE, Span};
use sunder_pipeline::Shape;
use sunder_placement::{CallSite, Policy};

/// The number of an object whose misses a replay counts separately; 0 stands for all other
/// memory.
pub type Subject = u16;

/// A layout of a program's objects.
#[derive(Clone, Debug, Default)]
pub struct Layout {
    /// The policy that places all heap objects; if none, they stay where they were.
    pub policy: Option<Policy>,
    /// New shapes of blocks, by call stack and size.
    pub blocks: HashMap<(u32, u64), Arc<Shape>>,
    /// New shapes of variables.
    pub statics: Vec<(Span, Arc<Shape>)>,
    /// The requests of blocks, by call stack.
    pub origins: Arc<HashMap<u32, Origin>>,
    /// The subjects of blocks, by call stack and size.
    pub subjects: HashMap<(u32, u64), Subject>,
    /// The subjects of variables, none overlapping another.
    pub static_subjects: Vec<(Span, Subject)>,
    /// The changes as text, as on the command line.
    pub changes: Vec<String>,
}

/// How the blocks of a call stack were requested.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The innermost call that is not `operator new`.
    pub site: CallSite,
    /// For traces that do not record the requested alignment: the alignment that the blocks'
    /// addresses suggest, 1 if none.
    pub align: u64,
}

impl Layout {
    /// Whether all objects stay where they were.
    pub fn is_actual(&self) -> bool {
        self.policy.is_none() && self.blocks.is_empty() && self.statics.is_empty()
    }

    /// Whether no subject is counted separately.
    pub fn is_uncounted(&self) -> bool {
        self.subjects.is_empty() && self.static_subjects.is_empty()
    }

    /// The placement's name in reports.
    pub const fn policy_name(&self) -> &'static str {
        match self.policy {
            None => "actual",
            Some(policy) => policy.name(),
        }
    }

    /// How call stack `stack` requested its blocks.
    pub fn origin(&self, stack: u32) -> Origin {
        self.origins.get(&stack).copied().unwrap_or_default()
    }

    /// The subject of a block of `size` bytes from call stack `stack`.
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
