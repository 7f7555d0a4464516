//! Emits string instructions with the distance of moved bytes added to their registers.

use super::emitter::{Emitter, Item, Target};
use crate::request::Shift;
use crate::strings::{StringOperation, StringPlan};
use crate::version::CopyKind;
use iced_x86::{Code, Instruction, MemoryOperand, Register as Iced};

impl Emitter<'_> {
    /// Emits a string instruction that has a plan. `next` is the instruction whose copy follows.
    pub(super) fn string(&mut self, way: CopyKind, n: usize, next: Option<usize>) {
        let chosen = self.chosen;
        let node = &chosen.graph.nodes[n];
        match self.plans(way).strings.get(&n) {
            Some(StringPlan::Direct(shift)) => self.shifted(node.instruction, *shift),
            Some(StringPlan::Guarded(ways)) => {
                let Some(first) = ways.first() else {
                    self.failed = true;
                    return;
                };
                self.guard(way, n, 0, &first.when);
                self.shifted(node.instruction, first.shift);
            }
            Some(StringPlan::Parts(_, parts)) => {
                for &part in parts {
                    self.shifted(node.instruction, part);
                }
                if parts.last().is_none_or(|last| last.count != 0) {
                    let ip = node.instruction.ip();
                    let rest = self.original(ip);
                    self.branch(Code::Jmp_rel32_64, rest, ip);
                    return;
                }
            }
            None => self.put(node.instruction, node.instruction.ip()),
        }
        self.follow(way, n, next);
    }

    /// Emits the other ways of a guarded string instruction, and finally the unchanged one.
    pub(super) fn other_shifts(&mut self, way: CopyKind, n: usize) {
        let Some(StringPlan::Guarded(ways)) = self.plans(way).strings.get(&n) else {
            return;
        };
        let instruction = self.chosen.graph.nodes[n].instruction;
        for (number, other) in ways.iter().enumerate().skip(1) {
            self.label(Target::Fails(way, n, number - 1));
            self.guard(way, n, number, &other.when);
            self.shifted(instruction, other.shift);
            self.rejoin(way, n);
        }
        self.label(Target::Fails(way, n, ways.len().saturating_sub(1)));
        self.put(instruction, instruction.ip());
        self.rejoin(way, n);
    }

    /// Emits the instruction between what adds the shift and what takes it off. In between a
    /// stopped thread has the shift taken off. It then goes on at the instruction, or behind it if
    /// nothing is left to do.
    fn shifted(&mut self, instruction: Instruction, shift: Shift) {
        let ip = instruction.ip();
        let mut now = Shift::default();
        if shift.destination != 0 {
            self.add(Iced::RDI, shift.destination.into(), ip, now);
            now.destination = shift.destination;
        }
        if shift.source != 0 {
            self.add(Iced::RSI, shift.source.into(), ip, now);
            now.source = shift.source;
        }
        if shift.count != 0 {
            self.add(Iced::RCX, -i64::from(shift.count), ip, now);
            now.count = shift.count;
        }
        self.put_shifted(instruction, ip, now);
        let repeated = StringOperation::of(&instruction).is_some_and(|o| o.is_repeated());
        let after = if repeated && shift.count != 0 {
            ip
        } else {
            instruction.next_ip()
        };
        if shift.count != 0 {
            self.add(Iced::RCX, shift.count.into(), after, now);
            now.count = 0;
        }
        if shift.source != 0 {
            self.add(Iced::RSI, -i64::from(shift.source), after, now);
            now.source = 0;
        }
        if shift.destination != 0 {
            self.add(Iced::RDI, -i64::from(shift.destination), after, now);
        }
    }

    /// Adds to a register without changing flags.
    fn add(&mut self, register: Iced, by: i64, resume: u64, now: Shift) {
        let sum = MemoryOperand::with_base_displ_size(register, by, 8);
        match Instruction::with2(Code::Lea_r64_m, register, sum) {
            Ok(lea) => self.put_shifted(lea, resume, now),
            Err(_) => self.failed = true,
        }
    }

    fn put_shifted(&mut self, instruction: Instruction, resume: u64, shift: Shift) {
        self.items.push(Item {
            instruction,
            target: None,
            resume,
            pushed: 0,
            saved: None,
            shift,
        });
    }
}
