//! Emits the checks on which facts are based, and the ways between the fast and the slow copy.

use super::emitter::{Emitter, Target};
use crate::registers::{FOLLOWED, Register};
use crate::values::Values;
use crate::version::CopyKind;
use iced_x86::{Code, Instruction, MemoryOperand, Register as Iced};

impl<'a> Emitter<'a> {
    /// Emits the comparison on which the facts after `n` are based.
    pub(super) fn check(&mut self, way: CopyKind, n: usize, after: u64) {
        let chosen = self.chosen;
        let Some(check) = chosen.checks.get(&n) else {
            return;
        };
        if way == CopyKind::Slow && !chosen.returns.contains(&n) {
            return;
        }
        self.label(Target::Check(way, n));
        let instance = chosen.graph.nodes[n].instance;
        self.compare(check.register, check.value, after);
        match way {
            CopyKind::Fast => {
                let slow = self.target(CopyKind::Slow, instance, after);
                self.branch(Code::Jne_rel32_64, slow, after);
            }
            CopyKind::Slow => {
                let mut fast = self.target(CopyKind::Fast, instance, after);
                if self.slots_at(fast).next().is_some() {
                    fast = Target::Back(n);
                }
                self.branch(Code::Je_rel32_64, fast, after);
            }
        }
    }

    /// The values that slots of the frame must have where the copy is entered.
    pub(super) fn slots_at(&self, target: Target) -> impl Iterator<Item = (u64, u64)> + use<'a> {
        let chosen = self.chosen;
        let facts = match target {
            Target::Node(_, n) => chosen.fast.facts.get(&n).zip(chosen.fast.needed.get(&n)),
            _ => None,
        };
        let slots = facts.zip(chosen.slots.as_ref()).into_iter();
        slots.flat_map(|((facts, needed), slots)| {
            let wanted = (16..FOLLOWED as u8).map(Register);
            let wanted = wanted.filter(move |r| needed & r.bit() != 0);
            wanted.filter_map(move |r| {
                let value = facts[r.index()].and_then(Values::only)?;
                Some((slots.displacement(r)?, value))
            })
        })
    }

    /// Returns to the fast copy, if the frame's slots have their expected values.
    pub(super) fn back(&mut self, n: usize) {
        if !self.back_is_wanted(n) {
            return;
        }
        let node = &self.chosen.graph.nodes[n];
        let (instance, after) = (node.instance, node.instruction.next_ip());
        let fast = self.target(CopyKind::Fast, instance, after);
        let slow = self.target(CopyKind::Slow, instance, after);
        self.label(Target::Back(n));
        for (displacement, value) in self.slots_at(fast) {
            for (offset, half) in [(0, value as u32), (4, (value >> 32) as u32)] {
                let at = displacement.wrapping_add(offset) as i64;
                let place = MemoryOperand::with_base_displ(Iced::RBP, at);
                self.put_made(Instruction::with2(Code::Cmp_rm32_imm32, place, half), after);
                self.branch(Code::Jne_rel32_64, slow, after);
            }
        }
        self.branch(Code::Jmp_rel32_64, fast, after);
    }

    pub(super) fn back_is_wanted(&self, n: usize) -> bool {
        self.items.iter().any(|i| i.target == Some(Target::Back(n)))
    }
}
