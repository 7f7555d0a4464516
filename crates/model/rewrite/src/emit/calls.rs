//! Emits direct calls and the returns of copied functions.

use super::emitter::{Emitter, Target};
use crate::flow::is_plain_return;
use crate::version::CopyKind;
use iced_x86::{Code, Instruction, MemoryOperand, Register as Iced};

impl Emitter<'_> {
    /// Pushes what the call pushes: the original return address, so that an unwinder sees the
    /// original code.
    pub(super) fn push_return_address(&mut self, call: &Instruction) {
        let literal = self.literal(call.next_ip());
        let place = MemoryOperand::with_base_displ(Iced::RIP, literal as i64);
        self.put_made(Instruction::with1(Code::Push_rm64, place), call.ip());
    }

    pub(super) fn call(
        &mut self,
        way: CopyKind,
        n: usize,
        call: &Instruction,
        next: Option<usize>,
    ) {
        self.push_return_address(call);
        let inner = self.chosen.graph.instances(n).next();
        if let Some((instance, target)) = inner {
            self.go_on(way, instance, target, next);
        } else {
            let callee = call.near_branch_target();
            self.branch(Code::Jmp_rel32_64, self.original(callee), callee);
        }
    }

    /// Emits a leaf's return: to the copy of its caller, if its return address leads there.
    pub(super) fn return_to_caller(
        &mut self,
        way: CopyKind,
        n: usize,
        instruction: &Instruction,
        next: Option<usize>,
    ) {
        let ip = instruction.ip();
        let chosen = self.chosen;
        let call = chosen.graph.called(chosen.graph.nodes[n].instance);
        let target = call.map(|call| (call, self.target(way, call.from, call.back)));
        let (Some((call, Target::Node(_, after))), true) = (target, is_plain_return(instruction))
        else {
            self.put(*instruction, ip);
            return;
        };
        if self.plans(way).unchecked_returns.contains(&n) {
            self.pop_return_address(ip);
            self.go_on(way, call.from, call.back, next);
            return;
        }
        // The comparison changes the flags.
        if chosen.live_flags.contains(&after) {
            self.put(*instruction, ip);
            return;
        }
        let back = call.back;
        for (offset, half) in [(0, back as u32), (4, (back >> 32) as u32)] {
            let place = MemoryOperand::with_base_displ(Iced::RSP, offset);
            self.put_made(Instruction::with2(Code::Cmp_rm32_imm32, place, half), ip);
            self.branch(Code::Jne_rel32_64, Target::Unexpected(way, n), ip);
        }
        // Marks that the code for the other case is needed; its position is set when it is
        // emitted.
        self.labels.insert(Target::Unexpected(way, n), usize::MAX);
        self.pop_return_address(ip);
        self.go_on(way, call.from, back, next);
    }

    /// Pops the return address off the stack.
    pub(super) fn pop_return_address(&mut self, resume: u64) {
        let place = MemoryOperand::with_base_displ(Iced::RSP, 8);
        self.put_made(
            Instruction::with2(Code::Lea_r64_m, Iced::RSP, place),
            resume,
        );
    }
}
