//! Emits calls and jumps through pointers, kernel calls, and operands that the copy does not
//! reach.

use super::emitter::{Emitter, Target, displaced};
use crate::bounds::Plan;
use crate::pointers::slot;
use crate::reach::{RED_ZONE, by_register, carried, carrier, is_far};
use crate::registers::Register;
use crate::version::CopyKind;
use alloc::vec::Vec;
use iced_x86::{Code, Instruction, MemoryOperand, OpKind, Register as Iced};
use sunder_x86::Manual;

impl Emitter<'_> {
    /// Whether a jump through a pointer continues in the copy: the pointer's operand has no
    /// guard, and the comparison may change the flags.
    pub(super) fn continues_in_copy(&self, way: CopyKind, n: usize) -> bool {
        let guarded = matches!(self.plans(way).plans.get(&n), Some(Plan::Guarded(_)));
        let chosen = self.chosen;
        chosen.graph.through.contains_key(&n) && !guarded && !chosen.live_flags.contains(&n)
    }

    /// A call or jump through a pointer, with the pointer's present address.
    fn through(&self, way: CopyKind, n: usize) -> Instruction {
        let i = self.chosen.graph.nodes[n].instruction;
        match (self.plans(way).plans.get(&n), slot(&i, Some(self.moved))) {
            (Some(Plan::Direct(displacement)), _) => displaced(i, *displacement),
            // The guard stands before.
            (Some(Plan::Guarded(all)), _) => match all.first() {
                Some(first) => displaced(i, first.displacement),
                None => i,
            },
            (_, Some(slot)) => displaced(i, slot.0),
            _ => i,
        }
    }

    /// Where the copy goes on for each known target of a call or jump through a pointer.
    fn ways(&self, n: usize) -> Vec<(u8, u64)> {
        let graph = &self.chosen.graph;
        let node = &graph.nodes[n];
        if node.instruction.is_call_near_indirect() {
            return graph.instances(n).collect();
        }
        let targets = graph.through.get(&n).into_iter().flatten();
        targets.map(|&target| (node.instance, target)).collect()
    }

    /// Emits a call through a pointer. With a guard, its other alternatives know no targets.
    pub(super) fn call_through(&mut self, way: CopyKind, n: usize, next: Option<usize>) {
        let chosen = self.chosen;
        if let (Some(Plan::Guarded(all)), true) = (self.plans(way).plans.get(&n), chosen.is_loop)
            && let Some(first) = all.first()
        {
            self.guard(way, n, 0, first);
        }
        // The comparison changes the flags.
        if chosen.live_flags.contains(&n) || !chosen.is_loop || self.ways(n).is_empty() {
            self.call_pointer(self.through(way, n));
            return;
        }
        self.first_target(way, n, next);
    }

    /// Compares the pointer with its first target, behind which the copy goes on.
    pub(super) fn first_target(&mut self, way: CopyKind, n: usize, next: Option<usize>) {
        let Some(&(instance, target)) = self.ways(n).first() else {
            self.failed = true;
            return;
        };
        // Marks that the code for the other case is needed; its position is set when it is
        // emitted.
        self.labels.insert(Target::Unexpected(way, n), usize::MAX);
        self.compare_pointer(way, n, target, Target::Unexpected(way, n));
        self.push_if_call(n);
        self.go_on(way, instance, target, next);
    }

    /// Compares the pointer with its other targets, and makes the call or jump if it has none of
    /// them: it leaves the copy.
    pub(super) fn other_targets(&mut self, way: CopyKind, n: usize) {
        for (number, (instance, target)) in self.ways(n).into_iter().enumerate().skip(1) {
            let other = Target::Way(way, n, number);
            self.labels.insert(other, usize::MAX);
            self.compare_pointer(way, n, target, other);
            self.push_if_call(n);
            self.go_on(way, instance, target, None);
            self.label(other);
        }
        let i = self.through(way, n);
        if i.is_call_near_indirect() {
            self.call_pointer(i);
        } else {
            self.put(i, i.ip());
        }
    }

    fn push_if_call(&mut self, n: usize) {
        let i = self.chosen.graph.nodes[n].instruction;
        if i.is_call_near_indirect() {
            self.push_return_address(&i);
        }
    }

    /// Makes a call through a pointer, as a push of the original return address and a jump. No
    /// original instruction corresponds to the jump: a thread that is stopped there repeats the
    /// call, with the stack as it was before.
    pub(super) fn call_pointer(&mut self, call: Instruction) {
        self.push_return_address(&call);
        let mut jump = call;
        jump.set_code(Code::Jmp_rm64);
        if call.op0_kind() == OpKind::Memory && call.memory_base() == Iced::RSP {
            jump = displaced(jump, call.memory_displacement64().wrapping_add(8));
        }
        self.put(jump, call.ip());
        if let Some(item) = self.items.last_mut() {
            item.pushed = 8;
        }
    }

    /// Compares the pointer of a call or jump with a target. In memory it is compared
    /// by halves, which needs no register. This is wrong only if another thread changes the
    /// pointer in between, from one function to another that is 4 GiB away.
    fn compare_pointer(&mut self, way: CopyKind, n: usize, target: u64, elsewhere: Target) {
        let i = self.through(way, n);
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
    pub(super) fn put_within_reach(&mut self, n: usize, instruction: Instruction) {
        let resume = instruction.ip();
        if !is_far(&instruction, self.near) {
            return self.put(instruction, resume);
        }
        match by_register(&instruction) {
            Some(Ok((first, second))) => {
                self.put(first, resume);
                if let Some(second) = second {
                    self.put(second, resume);
                }
            }
            Some(Err(_)) => self.failed = true,
            None => self.put_carried(n, instruction, resume),
        }
    }

    /// Emits an instruction with its operand's address in a register that it does not use, whose value
    /// is pushed meanwhile, below what the function may use of the stack. No flag changes but those
    /// of the instruction. A thread that is stopped in between has the register and the stack pointer
    /// restored. Neither is needed for a register whose value nobody reads.
    fn put_carried(&mut self, n: usize, i: Instruction, resume: u64) {
        let live = self.chosen.live.get(n).copied().unwrap_or(u16::MAX);
        let Some(carrier) = carrier(&i, &Manual::new().does(&i), live) else {
            return self.put(i, resume);
        };
        let register = carrier.register;
        let at = i.ip_rel_memory_address();
        if !carrier.is_live {
            self.put_made(
                Instruction::with2(Code::Mov_r64_imm64, register.iced(), at),
                resume,
            );
            return self.put(carried(&i, register), resume);
        }
        let saved = Some(register);
        let below = MemoryOperand::with_base_displ(Iced::RSP, -i64::from(RED_ZONE));
        let above = MemoryOperand::with_base_displ(Iced::RSP, RED_ZONE.into());
        let iced = register.iced();
        let pushed = RED_ZONE + 8;
        let mut step = |made: Result<Instruction, _>, resume, pushed, saved| {
            self.put_made(made, resume);
            if let Some(item) = self.items.last_mut() {
                (item.pushed, item.saved) = (pushed, saved);
            }
        };
        step(
            Instruction::with2(Code::Lea_r64_m, Iced::RSP, below),
            resume,
            0,
            None,
        );
        step(
            Instruction::with1(Code::Push_r64, iced),
            resume,
            RED_ZONE,
            None,
        );
        step(
            Instruction::with2(Code::Mov_r64_imm64, iced, at),
            resume,
            pushed,
            saved,
        );
        step(Ok(carried(&i, register)), resume, pushed, saved);
        step(
            Instruction::with1(Code::Pop_r64, iced),
            i.next_ip(),
            pushed,
            saved,
        );
        step(
            Instruction::with2(Code::Lea_r64_m, Iced::RSP, above),
            i.next_ip(),
            RED_ZONE,
            None,
        );
    }
}
