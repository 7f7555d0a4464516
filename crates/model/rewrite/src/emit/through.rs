//! Emits calls and jumps through pointers, kernel calls, and operands that the copy does not
//! reach.

use super::emitter::{Emitter, Target, displaced};
use crate::bounds::Plan;
use crate::plan::CopyKind;
use crate::pointers::slot;
use crate::reach::{by_register, is_far};
use crate::registers::Register;
use iced_x86::{Code, Instruction, MemoryOperand, Register as Iced};

impl Emitter<'_> {
    /// Whether a jump through a pointer continues in the copy: the pointer's operand has no
    /// guard, and the comparison may change the flags.
    pub(super) fn continues_in_copy(&self, way: CopyKind, n: usize) -> bool {
        let guarded = matches!(self.plans(way).plans.get(&n), Some(Plan::Guarded(_)));
        let chosen = self.chosen;
        chosen.graph.through.contains_key(&n) && !guarded && !chosen.live_flags.contains(&n)
    }

    /// A call or jump through a pointer, with the pointer's present address.
    pub(super) fn through(&self, way: CopyKind, n: usize) -> Instruction {
        let i = self.chosen.graph.nodes[n].instruction;
        match (self.plans(way).plans.get(&n), slot(&i, Some(self.moved))) {
            (Some(Plan::Direct(displacement)), _) => displaced(i, *displacement),
            (_, Some(slot)) => displaced(i, slot.0),
            _ => i,
        }
    }

    pub(super) fn jump(&mut self, way: CopyKind, n: usize, next: Option<usize>) {
        let graph = &self.chosen.graph;
        let Some(&target) = graph.through.get(&n) else {
            return;
        };
        let instance = graph.nodes[n].instance;
        // Marks that the code for the other case is needed; its position is set when it is
        // emitted.
        self.labels.insert(Target::Unexpected(way, n), usize::MAX);
        self.compare_pointer(way, n, Target::Unexpected(way, n));
        self.go_on(way, instance, target, next);
    }

    /// Compares the pointer of a call or jump with its expected value. In memory it is compared
    /// by halves, which needs no register. This is wrong only if another thread changes the
    /// pointer in between, from one function to another that is 4 GiB away.
    pub(super) fn compare_pointer(&mut self, way: CopyKind, n: usize, elsewhere: Target) {
        let graph = &self.chosen.graph;
        let i = self.through(way, n);
        let Some(&target) = graph.through.get(&n) else {
            self.failed = true;
            return;
        };
        if let Some(register) = Register::whole(i.op0_register()) {
            self.compare(register, target, i.ip());
            self.branch(Code::Jne_rel32_64, elsewhere, i.ip());
            return;
        }
        for (offset, half) in [(0, target as u32), (4, (target >> 32) as u32)] {
            let place = MemoryOperand::new(
                i.memory_base(),
                i.memory_index(),
                i.memory_index_scale(),
                i.memory_displacement64().wrapping_add(offset) as i64,
                8,
                false,
                Iced::None,
            );
            self.put_made(
                Instruction::with2(Code::Cmp_rm32_imm32, place, half),
                i.ip(),
            );
            self.branch(Code::Jne_rel32_64, elsewhere, i.ip());
        }
    }

    /// Emits a kernel call. The kernel returns the address of the copy in rcx, on whose value
    /// no program can rely.
    pub(super) fn kernel_call(
        &mut self,
        way: CopyKind,
        n: usize,
        call: &Instruction,
        next: Option<usize>,
    ) {
        let after = call.next_ip();
        self.put(*call, call.ip());
        let place = MemoryOperand::with_base_displ(Iced::RIP, self.literal(after) as i64);
        self.put_made(
            Instruction::with2(Code::Mov_r64_rm64, Iced::RCX, place),
            after,
        );
        self.go_on(way, self.chosen.graph.nodes[n].instance, after, next);
    }

    /// Emits an instruction whose operand the copy may not reach.
    pub(super) fn put_within_reach(&mut self, instruction: Instruction, resume: u64) {
        let far = is_far(&instruction, self.at).then(|| by_register(&instruction));
        match far.flatten() {
            Some(Ok((first, second))) => {
                self.put(first, resume);
                if let Some(second) = second {
                    self.put(second, resume);
                }
            }
            Some(Err(_)) => self.failed = true,
            None => self.put(instruction, resume),
        }
    }
}
