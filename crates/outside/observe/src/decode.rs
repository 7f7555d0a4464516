//! Turns samples into accesses (design 4.1): the memory that the instructions around the
//! sampled one access, where the sample's registers give the exact address.
//!
//! It follows the code forward from the sampled instruction to the end of its basic block, and
//! backward over the instructions that were executed just before. An address is claimed only if
//! every register in it is known at that instruction. Other accesses are listed as *near*, to
//! be judged by their instruction, with the pointer in memory through which they go if there is
//! one. Called by `pipeline`. Pure: the code comes from a [`CodeSource`], the samples from any
//! observer. It must never claim a wrong address.

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

/// The most instructions that are followed in each direction.
pub const WINDOW: usize = 40;

/// With more cached functions than this, those whose code is gone are dropped.
const SWEEP_ABOVE: usize = 4096;

/// The result for one sample. [`Decoder::decode`] clears and refills it, so that its memory is
/// reused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// Accesses at exactly known addresses: first those before the sampled instruction, the
    /// nearest first, then those from it on.
    pub accesses: Vec<Access>,
    /// The distance of each access from the sampled instruction, in instructions: 0 is the
    /// sampled one, which has not been executed yet, and -1 the one before.
    pub distances: Vec<i32>,
    /// Instructions of the window that access memory at unknown addresses.
    pub near: Vec<NearAccess>,
    /// Memory operands relative to `fs` or `gs` (thread-local variables), whose
    /// base a sample does not hold.
    pub segment_relative: u32,
    /// Whether there was code to decode at the sampled instruction.
    pub code_found: bool,
    /// The beginning of the function that contains the sampled instruction, if it is known.
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

/// An access in the window whose address is not known, because its registers change between it
/// and the sampled instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NearAccess {
    /// The instruction.
    pub instruction: CodeAddress,
    /// Read, write or update.
    pub kind: Kind,
    /// The width in bytes.
    pub width: u8,
    /// The distance from the sampled instruction, in instructions.
    pub distance: i32,
    /// The pointer in memory through which it goes, if it is known.
    pub through: Option<Slot>,
}

/// A pointer in memory at a known address; unoptimised code keeps all of its pointers so. An
/// instruction of the window loads the 8 bytes at `address` into a register, and the access is
/// at their value plus `add`. No instruction of the block changes the slot for certain, but
/// other code may: the slot has to be read twice, before and after the sample, to know what was
/// loaded (see [`crate::slots`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The address of the pointer.
    pub address: Address,
    /// The number of bytes that is added to its value.
    pub add: i64,
}

/// Decodes samples. It caches the functions that it has decoded.
#[derive(Default)]
pub struct Decoder {
    functions: HashMap<(RangeId, u32), Cached, BuildHasherDefault<RangeHasher>>,
    /// The number of cached functions at which those without code are dropped next.
    sweep_at: usize,
    builder: function::Builder,
    /// Holds code that may change; it is decoded again for every sample.
    scratch: Function,
}

struct Cached {
    function: Function,
    /// The code, to see whether it is still in use.
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
    /// A decoder with an empty cache.
    pub fn new() -> Self {
        Self::default()
    }

    /// Fills `out` with the result for `sample`. If there is no code at the sampled address,
    /// `out` is empty and its `code_found` is false.
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
        // The beginnings of instructions are not known: only the sampled one is certain.
        let window = self.cached(&range, offset);
        walk::forward(window, 0, sample, out);
    }

    /// The function of `range`, decoded from `offset` on; 0 is all of it.
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
