//! Operands relative to rip in a copy that is too far from them: in code of libraries, or where
//! the moved bytes are far from the program's code. The register that such an instruction loads
//! can hold the operand's address first. Called by the planner, which leaves out instructions
//! that can't be reached at all, and by the encoder.

use crate::registers::Register;
use iced_x86::{Code, IcedError, Instruction, MemoryOperand, Mnemonic, OpKind};

/// Near branches and displacements reach 2 GiB. The margin that is left here is much larger
/// than a copy.
pub(crate) const NEAR: u64 = (1 << 31) - (1 << 24);

/// Whether a copy at `at` can't encode the operand.
pub(crate) fn is_far(i: &Instruction, at: u64) -> bool {
    i.is_ip_rel_memory_operand() && i.ip_rel_memory_address().abs_diff(at) >= NEAR
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

/// Whether [`by_register`] can replace the operand.
pub(crate) fn has_register(i: &Instruction) -> bool {
    destination(i).is_some()
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
