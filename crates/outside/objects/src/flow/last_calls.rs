//! The calls of a function that never return.

use super::analysis::Analysis;
use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction};
use std::collections::{HashMap, HashSet};
use sunder_access::LinkAddress;

impl Analysis<'_> {
    /// The calls that never return. The instruction after such a call is reached from elsewhere,
    /// with other values.
    pub(super) fn last_calls(&mut self, instructions: &[Instruction]) -> HashSet<u64> {
        let mut known: HashMap<u64, bool> = HashMap::new();
        let mut found = HashSet::new();
        for instruction in instructions {
            if instruction.is_ip_rel_memory_operand()
                && instruction.flow_control() == FlowControl::IndirectCall
                && self.is_last_import(instruction.ip_rel_memory_address())
            {
                found.insert(instruction.ip());
            }
            let Some(target) = self.call_target(instruction) else {
                continue;
            };
            let by_stub = self.stub(target);
            let (debug, limits) = (&mut *self.debug, &mut *self.limits);
            let last = *known
                .entry(target)
                .or_insert_with(|| by_stub || debug.never_returns(LinkAddress(target), limits));
            if last {
                found.insert(instruction.ip());
            }
        }
        found
    }

    /// Whether `target` is a linker's stub that jumps to a function of another file that never
    /// returns.
    pub(super) fn stub(&self, target: u64) -> bool {
        /// A stub is at most a landing pad and a jump.
        const STUB_BYTES: u64 = 16;
        let code = self.function.image.bytes(LinkAddress(target), STUB_BYTES);
        let decoder = Decoder::with_ip(64, &code, target, DecoderOptions::NONE);
        let jump = decoder.into_iter().take(2).find(|i| {
            i.flow_control() == FlowControl::IndirectBranch && i.is_ip_rel_memory_operand()
        });
        jump.is_some_and(|jump| self.is_last_import(jump.ip_rel_memory_address()))
    }

    /// Whether the pointer at `place` leads to a function of another file that never returns,
    /// according to its documentation.
    pub(super) fn is_last_import(&self, place: u64) -> bool {
        const LAST: [&str; 13] = [
            "abort",
            "exit",
            "_exit",
            "quick_exit",
            "pthread_exit",
            "longjmp",
            "siglongjmp",
            "__stack_chk_fail",
            "__assert_fail",
            "_Unwind_Resume",
            "_ZSt9terminatev",
            "__cxa_rethrow",
            "__chk_fail",
        ];
        self.function.imports.get(&place).is_some_and(|name| {
            LAST.contains(&name.as_str())
                || name.starts_with("__cxa_throw")
                || (name.starts_with("_ZSt") && name.contains("__throw_"))
        })
    }

    /// The function that `instruction` calls, directly or through the global
    /// offset table.
    pub(super) fn call_target(&self, instruction: &Instruction) -> Option<u64> {
        match instruction.flow_control() {
            FlowControl::Call => Some(instruction.near_branch_target()),
            FlowControl::IndirectCall if instruction.is_ip_rel_memory_operand() => self
                .function
                .pointers
                .get(&instruction.ip_rel_memory_address())
                .copied(),
            _ => None,
        }
    }
}
