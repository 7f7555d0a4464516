//! Turns samples into accesses (design 4.1): the memory that the instructions around the
//! sampled one access, where the sample's registers give the exact address.
//!
//! It follows the code forward from the sampled instruction to the end of its basic block, and
//! backward over the instructions that were executed just before. An address is claimed only if
//! every register in it is known at that instruction. Other accesses are listed as *near*, to
//! be judged by their instruction, with the pointer in memory through which they go if there is
//! one. Called by `pipeline`. Pure: the code comes from a [`CodeSource`], the samples from any
//! observer. It must never claim a wrong address.

mod decoded;
mod effect;
mod flags;
mod function;
mod instruction;
mod operand;
mod range;
mod slots;
mod suspects;
mod walk;
mod ways;

pub use decoded::{Decoded, NearAccess, Slot, WINDOW};
pub use range::{CodeRange, CodeSource};

use crate::RawSample;
use function::Function;
use range::{RangeHasher, RangeId};
use std::collections::HashMap;
use std::hash::BuildHasherDefault;
use std::sync::{Arc, Weak};
use sunder_access::CodeAddress;

/// With more cached functions than this, those whose code is gone are dropped.
const SWEEP_ABOVE: usize = 4096;

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
            out.blind = out.accesses.is_empty();
            return;
        }
        if range.exact_start {
            let function = self.cached(&range, 0);
            if let Some(index) = function.index_of(offset) {
                out.function = Some(CodeAddress(function.start));
                let before = walk::backward(function, index, sample, out);
                let is_last_known = walk::behind_joins(function, index, sample, out);
                let after = walk::forward(function, index, sample, out);
                suspects::find(function, index, is_last_known, out);
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
        // What was executed before it is not, so the sample tells nothing unless what follows does.
        let window = self.cached(&range, offset);
        walk::forward(window, 0, sample, out);
        out.blind = out.accesses.is_empty();
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
