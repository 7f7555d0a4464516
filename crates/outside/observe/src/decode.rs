//! Samples to accesses (design 4.1): what the instructions around a sampled
//! one touch, as far as the registers of the sample tell exactly.
//!
//! Forward from the sampled instruction to the end of its basic block, and
//! backward over what was executed just before it. An address is claimed only
//! if every register in it is known at that instruction; the rest is named as
//! *near*, for judging by site, with the pointer in memory that it goes through
//! where there is one. Pure: the code comes from a [`CodeSource`], the
//! samples from whoever took them. Must never claim a wrong address.

mod effect;
mod function;
mod instruction;
mod operand;
mod range;
mod slots;
mod walk;

pub use range::{CodeRange, CodeSource};

use crate::RawSample;
use function::Function;
use range::{RangeHasher, RangeId};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Weak};
use sunder_access::{Access, Address, CodeAddress, Kind};

/// Instructions looked at in each direction at most.
pub const WINDOW: usize = 40;

/// Cached functions, from which on those are dropped whose code is gone.
const SWEEP_ABOVE: usize = 4096;

/// What one sample tells. Cleared and refilled by [`Decoder::decode`], so that
/// its memory is reused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// Exactly known accesses: of the window before the sampled instruction
    /// from near to far, then from it on.
    pub accesses: Vec<Access>,
    /// For each access, how many instructions after the sampled one: 0 is the
    /// sampled instruction, which has not been executed yet, -1 the one before.
    pub distances: Vec<i32>,
    /// Instructions in the window that touch memory at unknown addresses.
    pub near: Vec<NearAccess>,
    /// Memory operands relative to `fs` or `gs` (thread-local variables), whose
    /// base a sample does not hold.
    pub segment_relative: u32,
    /// Whether there was code to decode at the sampled instruction.
    pub code_found: bool,
    /// Where the function begins that the sampled instruction belongs to, if
    /// that is known.
    pub function: Option<CodeAddress>,
}

impl Decoded {
    fn clear(&mut self) {
        self.accesses.clear();
        self.distances.clear();
        self.near.clear();
        self.segment_relative = 0;
        self.code_found = false;
        self.function = None;
    }
}

/// An access in the window whose address is not known: its registers were
/// changed between it and the sampled instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearAccess {
    /// The instruction.
    pub instruction: CodeAddress,
    /// What it does.
    pub kind: Kind,
    /// To how many bytes.
    pub width: u8,
    /// How many instructions after the sampled one.
    pub distance: i32,
    /// The pointer in memory that it was made through, if there is one to be
    /// named.
    pub through: Option<Slot>,
}

/// A pointer in memory at a known address, as unoptimised code keeps all of its
/// pointers: an instruction of the window loaded the 8 bytes at `address` into a
/// register, and the access is at that value plus `add`. No instruction of the
/// block is seen to change the slot; others may, so it takes two readings of it,
/// before and after, to know what was loaded (see [`crate::slots`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// Where the pointer lies.
    pub address: Address,
    /// What is added to it, in bytes.
    pub add: i64,
}

/// Decodes samples; remembers the functions that it has seen.
#[derive(Default)]
pub struct Decoder {
    functions: HashMap<(RangeId, u32), Cached, BuildHasherDefault<RangeHasher>>,
    /// How many functions there may be before the next look for dead ones.
    sweep_at: usize,
    builder: function::Builder,
    /// For code that may change, decoded anew for every sample.
    scratch: Function,
}

struct Cached {
    function: Function,
    /// Tells whether anybody still has the code.
    code: Weak<CodeRange>,
}

impl std::fmt::Debug for Decoder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Decoder")
            .field("functions", &self.functions.len())
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder that has seen nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// Replaces `out` by what `sample` tells. Without code at the sampled
    /// address, `out` is empty and says so.
    pub fn decode(&mut self, sample: &RawSample, code: &mut dyn CodeSource, out: &mut Decoded) {
        out.clear();
        let ip = sample.registers.ip;
        let Some(range) = code.function(sample.process, ip) else {
            return;
        };
        let Some(offset) = range.offset_of(ip) else {
            return;
        };
        out.code_found = true;
        if !range.stable {
            self.builder
                .window(&range, offset, WINDOW, &mut self.scratch);
            walk::forward(&self.scratch, 0, sample, out);
            return;
        }
        if range.exact_start {
            let function = self.cached(&range, 0);
            if let Some(index) = function.index_of(offset) {
                out.function = Some(CodeAddress(function.start));
                let before = walk::backward(function, index, sample, out);
                let after = walk::forward(function, index, sample, out);
                let Some(last) = after.as_ref().or(before.as_ref()).map(|w| *w.end()) else {
                    return;
                };
                let window = slots::Window {
                    start: before.map_or(index, |w| *w.start()),
                    sampled: index,
                    last,
                };
                slots::assign(function, window, &sample.registers.general, out);
                return;
            }
        }
        // Where instructions begin is not known: only the sampled one is sure.
        let window = self.cached(&range, offset);
        walk::forward(window, 0, sample, out);
    }

    /// The function of `range` decoded from `offset` on; 0 is all of it.
    fn cached(&mut self, range: &Arc<CodeRange>, offset: u32) -> &Function {
        if self.functions.len() >= self.sweep_at {
            self.functions
                .retain(|_, cached| cached.code.strong_count() > 0);
            self.sweep_at = SWEEP_ABOVE.max(self.functions.len() * 2);
        }
        let builder = &mut self.builder;
        let cached = self
            .functions
            .entry((range.id(), offset))
            .or_insert_with(|| {
                let mut function = Function::default();
                if offset == 0 && range.exact_start {
                    builder.whole(range, &mut function);
                } else {
                    builder.window(range, offset, WINDOW, &mut function);
                }
                Cached {
                    function,
                    code: Arc::downgrade(range),
                }
            });
        &cached.function
    }
}
