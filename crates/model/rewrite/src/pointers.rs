//! Calls and jumps through pointers: which instructions are such, and where they probably lead as
//! far as the linker's slots and earlier guesses ([`crate::calls`]) tell. Called by the
//! control-flow graph; it must not follow control flow itself.

use crate::reach::is_far;
use crate::request::{Code, Frame, Memory, MovedPage, Relocation, Request};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use iced_x86::{Instruction, OpKind, Register as Part};
use sunder_access::{Address, CodeAddress};

/// The targets of calls and jumps through pointers, by the address after the instruction. The
/// most probable one comes first.
pub(crate) type Targets = BTreeMap<u64, Vec<u64>>;

/// The most targets of one call or jump that are copied.
const MOST_TARGETS: usize = 6;

/// Adds a target unless it is known or there are too many.
pub(crate) fn add(targets: &mut Targets, after: u64, target: u64) {
    let known = targets.entry(after).or_default();
    if known.len() < MOST_TARGETS && !known.contains(&target) {
        known.push(target);
    }
}

/// What is known in addition to the code of a function.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    /// Functions that may be copied too.
    pub callees: &'a [Code<'a>],
    pub memory: Memory<'a>,
    /// The moved page, which may contain the linker's slots.
    pub moved: Option<&'a MovedPage>,
    pub targets: &'a Targets,
    /// As [`Request::near`], if there is to be a copy.
    pub near: Option<CodeAddress>,
    /// The function of the fault, and its callers: without one of them, no loop of a caller holds
    /// the instruction.
    pub frames: Option<(CodeAddress, &'a [Frame<'a>])>,
}

/// No targets are known.
pub(crate) static NOWHERE: Targets = Targets::new();

impl<'a> Context<'a> {
    /// For the analysis of one function alone.
    pub(crate) const fn alone(memory: Memory<'a>) -> Self {
        Self {
            callees: &[],
            memory,
            moved: None,
            targets: &NOWHERE,
            near: None,
            frames: None,
        }
    }

    pub(crate) const fn of(request: &Request<'a>, targets: &'a Targets) -> Self {
        Self {
            callees: request.callees,
            memory: request.memory,
            moved: Some(request.moved),
            targets,
            near: Some(request.near),
            frames: Some((request.frame.code.start, request.callers)),
        }
    }

    /// Whether the copy could not reach an operand relative to rip.
    pub(crate) fn is_far(&self, i: &Instruction) -> bool {
        self.near.is_some_and(|near| is_far(i, near.0))
    }

    /// The probable targets of a call or jump through a pointer.
    pub(crate) fn targets(&self, i: &Instruction) -> Vec<u64> {
        if !is_through(i) || is_thread_local(i) || self.is_far(i) {
            return Vec::new();
        }
        let slot = || {
            let slot = slot(i, self.moved)?;
            (self.memory.0)(slot, 8)
        };
        let known = self.targets.get(&i.next_ip()).cloned();
        known.unwrap_or_else(|| slot().into_iter().collect())
    }

    /// Whether the thread is in the function that begins at `target`.
    pub(crate) fn is_in(&self, target: u64) -> bool {
        self.frames.is_some_and(|(own, callers)| {
            own.0 == target || callers.iter().any(|c| c.code.start.0 == target)
        })
    }

    pub(crate) fn code(&self, target: u64) -> Option<&'a Code<'a>> {
        self.callees.iter().find(|c| c.start.0 == target)
    }
}

/// The present address of the linker's slot through which a call or jump goes; `None` if it
/// does not go through one, or if the address is not known.
pub(crate) fn slot(i: &Instruction, moved: Option<&MovedPage>) -> Option<Address> {
    let slot = i.ip_rel_memory_address();
    if !i.is_ip_rel_memory_operand() {
        return None;
    }
    match moved.map_or(Relocation::Elsewhere, |page| page.relocation(slot, 8)) {
        Relocation::Elsewhere => Some(Address(slot)),
        Relocation::In(rule) => Some(Address(slot.wrapping_add_signed(rule.delta))),
        Relocation::Straddles => None,
    }
}

/// Whether the instruction is a near call or jump to an address in a register or in memory.
pub(crate) fn is_through(i: &Instruction) -> bool {
    let whole = match i.op0_kind() {
        OpKind::Register => i.op0_register().is_gpr64(),
        OpKind::Memory => i.memory_size().size() == 8,
        _ => false,
    };
    whole && (i.is_call_near_indirect() || i.is_jmp_near_indirect())
}

pub(crate) fn is_thread_local(i: &Instruction) -> bool {
    i.op0_kind() == OpKind::Memory && matches!(i.memory_segment(), Part::FS | Part::GS)
}
