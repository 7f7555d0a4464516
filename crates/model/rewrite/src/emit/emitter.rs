//! The instructions of a copy as they are put together, with their branches to each other, and
//! their encoding. Used by the other files of [`crate::emit`]; it must not know which code a copy needs.

use crate::choose::Chosen;
use crate::reach::NEAR;
use crate::registers::Register;
use crate::request::{MovedPage, Shift};
use crate::version::{CopyKind, Version};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use iced_x86::{
    BlockEncoder, BlockEncoderOptions, Code, Instruction, InstructionBlock, MemoryOperand,
    Register as Iced,
};

/// The instructions of the copy are numbered by addresses from here on, which user space does
/// not have.
const NOWHERE: u64 = 1 << 61;

/// The targets of branches in the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Target {
    /// The copy of an instruction.
    Node(CopyKind, usize),
    /// The check after an instruction.
    Check(CopyKind, usize),
    /// The guard of an instruction, after a first comparison said that its operand may be on
    /// the page.
    Guard(CopyKind, usize),
    /// The code for an alternative of a guard that fails.
    Fails(CopyKind, usize, usize),
    /// The operand, behind the search for its alternative's range.
    Within(CopyKind, usize, usize),
    /// The upper half of ranges that are searched, by the item of the comparison.
    Half(usize),
    /// The sum before a jump through a table, for the case that it leads to this target.
    Case(CopyKind, usize, usize),
    /// From the check after an instruction of the slow copy to the fast copy.
    Back(usize),
    /// The code for a return, call or jump to another address than the expected one.
    Unexpected(CopyKind, usize),
    /// The comparison with another target of a call or jump through a pointer.
    Way(CopyKind, usize, usize),
    /// An instruction of the original code.
    Original(u64),
    /// A jump to original code that a near branch does not reach.
    Far(u64),
}

/// An instruction of the copy.
pub(super) struct Item {
    pub instruction: Instruction,
    /// Where it branches to.
    pub target: Option<Target>,
    /// The original instruction at which a thread goes on that is stopped here.
    pub resume: u64,
    /// Bytes by which the stack pointer is lower than the original's.
    pub pushed: u8,
    /// The register whose value lies at the top of the stack.
    pub saved: Option<Register>,
    /// What the copy has done to registers of a string instruction.
    pub shift: Shift,
}

/// The most constants of a copy with a row of more than a few, for 16 KiB.
const MOST_LITERALS: usize = 2048;

/// The copy that is being made.
pub(super) struct Emitter<'a> {
    pub chosen: &'a Chosen,
    pub moved: &'a MovedPage,
    /// Constants that lie before the code.
    pub literals: Vec<u64>,
    /// The address at which the block will lie.
    pub at: u64,
    /// By this address it was decided what the copy can reach; see [`Request::near`](crate::Request).
    pub near: u64,
    pub items: Vec<Item>,
    /// The first item of each target.
    pub labels: BTreeMap<Target, usize>,
    /// Whether something could not be encoded.
    pub failed: bool,
}

impl<'a> Emitter<'a> {
    pub(super) fn plans(&self, way: CopyKind) -> &'a Version {
        match way {
            CopyKind::Fast => &self.chosen.fast,
            CopyKind::Slow => &self.chosen.slow,
        }
    }

    pub(super) fn label(&mut self, target: Target) {
        self.labels.insert(target, self.items.len());
    }

    pub(super) fn put(&mut self, instruction: Instruction, resume: u64) {
        self.items.push(Item {
            instruction,
            target: None,
            resume,
            pushed: 0,
            saved: None,
            shift: Shift::default(),
        });
    }

    pub(super) fn put_made(&mut self, made: Result<Instruction, iced_x86::IcedError>, resume: u64) {
        match made {
            Ok(instruction) => self.put(instruction, resume),
            Err(_) => self.failed = true,
        }
    }

    pub(super) fn branch(&mut self, code: Code, target: Target, resume: u64) {
        match Instruction::with_branch(code, 0) {
            Ok(instruction) => self.items.push(Item {
                instruction,
                target: Some(target),
                resume,
                pushed: 0,
                saved: None,
                shift: Shift::default(),
            }),
            Err(_) => self.failed = true,
        }
    }

    /// The address of a constant with this value.
    pub(super) fn literal(&mut self, value: u64) -> u64 {
        self.row(&[value])
    }

    /// The address at which these constants lie one after the other.
    pub(super) fn row(&mut self, values: &[u64]) -> u64 {
        let known = self
            .literals
            .windows(values.len())
            .position(|w| w == values);
        let place = known.unwrap_or_else(|| {
            self.literals.extend_from_slice(values);
            self.literals.len() - values.len()
        });
        self.at + 8 * place as u64
    }

    /// Whether this row is there already, or the copy may have one more of its length.
    pub(super) fn has_room_for(&self, values: &[u64]) -> bool {
        let known = self.literals.windows(values.len()).any(|w| w == values);
        known || self.literals.len() + values.len() <= MOST_LITERALS
    }

    pub(super) fn target(&self, way: CopyKind, instance: u8, ip: u64) -> Target {
        match self.chosen.graph.find(instance, ip) {
            Some(n) if self.chosen.body.contains(&n) => Target::Node(way, n),
            _ => self.original(ip),
        }
    }

    pub(super) fn original(&self, ip: u64) -> Target {
        if ip.abs_diff(self.near) < NEAR {
            Target::Original(ip)
        } else {
            Target::Far(ip)
        }
    }

    /// Continues at `ip`, with a jump unless its copy is next anyway.
    pub(super) fn go_on(&mut self, way: CopyKind, instance: u8, ip: u64, next: Option<usize>) {
        let target = self.target(way, instance, ip);
        if next.map(|next| Target::Node(way, next)) == Some(target) {
            return;
        }
        self.branch(Code::Jmp_rel32_64, target, ip);
    }

    pub(super) fn compare(&mut self, register: Register, value: u64, resume: u64) {
        let register = register.iced();
        let made = match i32::try_from(value as i64) {
            Ok(tiny) if i8::try_from(tiny).is_ok() => {
                Instruction::with2(Code::Cmp_rm64_imm8, register, tiny)
            }
            Ok(small) => Instruction::with2(Code::Cmp_rm64_imm32, register, small),
            Err(_) => {
                let literal = self.literal(value);
                let place = MemoryOperand::with_base_displ(Iced::RIP, literal as i64);
                Instruction::with2(Code::Cmp_r64_rm64, register, place)
            }
        };
        self.put_made(made, resume);
    }

    /// The bytes, and the offset of each item in them.
    pub(super) fn encode(&mut self) -> Option<(Vec<u8>, Vec<u32>)> {
        let constants = (8 * self.literals.len()).next_multiple_of(16);
        let address_of = |place: usize| NOWHERE + 32 * place as u64;
        for (place, item) in self.items.iter_mut().enumerate() {
            item.instruction.set_ip(address_of(place));
            let target = match item.target {
                None => continue,
                Some(Target::Original(ip)) => ip,
                Some(target) => match self.labels.get(&target) {
                    Some(&label) if label != usize::MAX => address_of(label),
                    _ => return None,
                },
            };
            item.instruction.set_near_branch64(target);
        }
        let code: Vec<Instruction> = self.items.iter().map(|i| i.instruction).collect();
        let start = self.at + constants as u64;
        let options = BlockEncoderOptions::RETURN_NEW_INSTRUCTION_OFFSETS;
        let made = BlockEncoder::encode(64, InstructionBlock::new(&code, start), options).ok()?;
        let mut bytes = Vec::with_capacity(constants + made.code_buffer.len());
        for literal in &self.literals {
            bytes.extend_from_slice(&literal.to_le_bytes());
        }
        bytes.resize(constants, 0xcc);
        bytes.extend_from_slice(&made.code_buffer);
        let offsets: Option<Vec<u32>> = made
            .new_instruction_offsets
            .iter()
            .map(|&offset| offset.checked_add(constants as u32))
            .collect();
        Some((bytes, offsets?))
    }
}

/// The instruction with another displacement.
pub(super) fn displaced(mut instruction: Instruction, displacement: u64) -> Instruction {
    instruction.set_memory_displacement64(displacement);
    if instruction.memory_base() != Iced::RIP {
        instruction.set_memory_displ_size(8);
    }
    instruction
}
