//! Operands relative to rip in a copy that is too far from them: in code of libraries, or where
//! the moved bytes are far from the program's code. The register that such an instruction loads
//! can hold the operand's address first; for others, the copy pushes a register for that. Called by
//! the planner, which leaves out instructions that can't be reached at all, and by the encoder.

use crate::registers::Register;
use iced_x86::{Code, FlowControl, IcedError, Instruction, MemoryOperand, Mnemonic, OpKind};
use sunder_x86::Does;
use sunder_x86::register::KEPT_BY_CALLS;

/// Near branches and displacements reach 2 GiB. The margin that is left here is much larger
/// than a copy.
pub(crate) const NEAR: u64 = (1 << 31) - (1 << 24);

/// Whether a copy at `at` can't encode the operand.
pub(crate) fn is_far(i: &Instruction, at: u64) -> bool {
    i.is_ip_rel_memory_operand() && i.ip_rel_memory_address().abs_diff(at) >= NEAR
}

/// Bytes below the stack pointer that a function may use (the red zone of the System V ABI).
pub(crate) const RED_ZONE: u8 = 128;

/// A register that can hold the operand's address while the instruction is executed: one that it does
/// not use. `None` if the instruction uses the stack or the kernel, goes elsewhere, or has no such
/// operand. Its value is pushed meanwhile, if it is among those that are `live` after the instruction.
/// One that is not is taken if possible: of those that functions need not keep, so that whoever looks
/// at the thread there finds the callers' registers.
pub(crate) fn carrier(i: &Instruction, does: &Does, live: u16) -> Option<Carrier> {
    const STACK: u16 = 1 << 4;
    // These can be used with every encoding. Others need a prefix with which `ah` and its kin have
    // no encoding.
    const CARRIERS: [u8; 6] = [0, 1, 2, 3, 6, 7];
    let used = does.registers.read | does.registers.written;
    let is_plain = i.flow_control() == FlowControl::Next
        && i.memory_base() == iced_x86::Register::RIP
        && !i.has_segment_prefix()
        && !i.is_stack_instruction()
        && !does.elsewhere
        && used & STACK == 0;
    let free = || CARRIERS.into_iter().filter(|n| used >> n & 1 == 0);
    let is_dead = |n: &u8| (live | KEPT_BY_CALLS) >> n & 1 == 0;
    let (register, is_live) = match free().find(is_dead) {
        Some(dead) => (dead, false),
        None => (free().next()?, true),
    };
    is_plain.then_some(Carrier {
        register: Register(register),
        is_live,
    })
}

/// A register that holds the address of an operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Carrier {
    pub register: Register,
    /// Whether its value is needed later.
    pub is_live: bool,
}

/// The instruction with its operand at the address in `register`.
pub(crate) fn carried(i: &Instruction, register: Register) -> Instruction {
    let mut carried = *i;
    carried.set_memory_base(register.iced());
    carried.set_memory_displacement64(0);
    carried.set_memory_displ_size(0);
    carried
}

/// The register that a plain load or `lea` overwrites as a whole.
fn destination(i: &Instruction) -> Option<Register> {
    let loads = matches!(
        i.mnemonic(),
        Mnemonic::Mov | Mnemonic::Movzx | Mnemonic::Movsx | Mnemonic::Movsxd | Mnemonic::Lea
    );
    let register = i.op0_register();
    let whole = register.is_gpr64() || register.is_gpr32() && i.mnemonic() != Mnemonic::Lea;
    let is = loads && i.op0_kind() == OpKind::Register && whole && !i.has_segment_prefix();
    is.then(|| Register::of(register))?
}

/// Whether [`by_register`] or [`carried`] can replace the operand.
pub(crate) fn has_register(i: &Instruction, does: impl FnOnce() -> Does) -> bool {
    destination(i).is_some() || carrier(i, &does(), u16::MAX).is_some()
}

/// Instructions that do the same from any address; `None` if there are none. A thread may be
/// stopped between them and restart the original: that overwrites the register anyway.
pub(crate) fn by_register(
    i: &Instruction,
) -> Option<Result<(Instruction, Option<Instruction>), IcedError>> {
    let register = destination(i)?.iced();
    let address = i.ip_rel_memory_address();
    let first = match Instruction::with2(Code::Mov_r64_imm64, register, address) {
        Ok(first) => first,
        Err(error) => return Some(Err(error)),
    };
    if i.mnemonic() == Mnemonic::Lea {
        return Some(Ok((first, None)));
    }
    let place = MemoryOperand::with_base(register);
    let op0 = i.op0_register();
    Some(Instruction::with2(i.code(), op0, place).map(|second| (first, Some(second))))
}
