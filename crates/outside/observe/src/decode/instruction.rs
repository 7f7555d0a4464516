//! One instruction as the walks need it: how long, what it changes, where
//! control goes. The only file besides `operand` and `function` that asks iced.

use super::effect::{Effect, Index, RSP, Register};
use iced_x86::{FlowControl, Instruction, InstructionInfo, Mnemonic, OpAccess, OpKind};

/// The encoding number of a 32- or 64-bit general register, but not of its
/// 8- and 16-bit parts, which no address is made of.
pub(super) fn general(register: iced_x86::Register) -> Option<Register> {
    (register.is_gpr32() || register.is_gpr64()).then(|| register.number() as Register)
}

/// All general registers that the instruction changes or may change, one bit
/// each.
pub(super) fn writes(info: &InstructionInfo) -> u16 {
    let mut all = 0;
    for used in info.used_registers() {
        let changed = matches!(
            used.access(),
            OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
        );
        if changed && let Some(number) = general(used.register().full_register()) {
            all |= 1 << number;
        }
    }
    all
}

/// Whether a basic block ends with it.
pub(super) fn ends_block(instruction: &Instruction) -> bool {
    instruction.is_invalid() || instruction.flow_control() != FlowControl::Next
}

/// The address that a direct jump within the code may go to.
pub(super) fn jump_target(instruction: &Instruction) -> Option<u64> {
    let jumps = matches!(
        instruction.flow_control(),
        FlowControl::UnconditionalBranch
            | FlowControl::ConditionalBranch
            | FlowControl::XbeginXabortXend
    );
    let near = matches!(
        instruction.op0_kind(),
        OpKind::NearBranch16 | OpKind::NearBranch32 | OpKind::NearBranch64
    );
    (jumps && near).then(|| instruction.near_branch_target())
}

/// Whether it jumps to a place that the code does not name: through a jump
/// table, perhaps. A jump through a fixed slot (a tail call by the procedure
/// linkage table) leaves the function.
pub(super) fn jumps_anywhere(instruction: &Instruction) -> bool {
    instruction.flow_control() == FlowControl::IndirectBranch
        && !(instruction.op0_kind() == OpKind::Memory && instruction.is_ip_rel_memory_operand())
}

/// What it computes.
pub(super) fn effect(instruction: &Instruction) -> Effect {
    use Mnemonic as M;
    match instruction.mnemonic() {
        M::Push | M::Pushfq | M::Popfq => stack(instruction),
        M::Pop if instruction.op0_register() != iced_x86::Register::RSP => stack(instruction),
        M::Leave => Effect::Leave,
        M::Cdqe => Effect::SignExtend { to: 0, from: 0 },
        _ => to_register(instruction).unwrap_or(Effect::Opaque),
    }
}

fn stack(instruction: &Instruction) -> Effect {
    Effect::Add {
        to: RSP,
        value: i64::from(instruction.stack_pointer_increment()) as u64,
        narrow: false,
    }
}

/// Effects with a 32- or 64-bit register as their first operand.
fn to_register(instruction: &Instruction) -> Option<Effect> {
    use Mnemonic as M;
    if instruction.op0_kind() != OpKind::Register {
        return None;
    }
    let to = general(instruction.op0_register())?;
    let narrow = instruction.op0_register().is_gpr32();
    let one = |value: u64| Effect::Add { to, value, narrow };
    match instruction.mnemonic() {
        M::Inc => return Some(one(1)),
        M::Dec => return Some(one(u64::MAX)),
        M::Lea => return lea(instruction, to, narrow),
        M::Imul => return multiply(instruction, to, narrow),
        _ => {}
    }
    if instruction.op_count() != 2 {
        return None;
    }
    if let Some(value) = constant(instruction) {
        return with_constant(instruction.mnemonic(), to, value, narrow);
    }
    if instruction.op1_kind() == OpKind::Memory && instruction.mnemonic() == M::Mov && !narrow {
        return Some(Effect::Load { to });
    }
    if instruction.op1_kind() != OpKind::Register {
        return None;
    }
    let source = instruction.op1_register();
    if instruction.mnemonic() == M::Movzx {
        return zero_extend(to, source);
    }
    let from = general(source)?;
    let add = |subtract| Effect::AddRegister {
        to,
        from,
        subtract,
        narrow,
    };
    Some(match instruction.mnemonic() {
        M::Movsxd if source.is_gpr32() && !narrow => Effect::SignExtend { to, from },
        M::Xor | M::Sub if to == from => Effect::Set { to, value: 0 },
        M::Mov => Effect::Copy { to, from, narrow },
        M::Add => add(false),
        M::Sub => add(true),
        M::Xchg if !narrow => Effect::Swap { a: to, b: from },
        _ => return None,
    })
}

/// The second operand if it is a constant, sign-extended.
fn constant(instruction: &Instruction) -> Option<u64> {
    matches!(
        instruction.op1_kind(),
        OpKind::Immediate8
            | OpKind::Immediate32
            | OpKind::Immediate64
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32to64
    )
    .then(|| instruction.immediate(1))
}

fn with_constant(mnemonic: Mnemonic, to: Register, value: u64, narrow: bool) -> Option<Effect> {
    use Mnemonic as M;
    let cut = if narrow { value & 0xffff_ffff } else { value };
    // The hardware takes the count modulo the width.
    let count = value as u8 & if narrow { 31 } else { 63 };
    Some(match mnemonic {
        M::Mov => Effect::Set { to, value: cut },
        M::Add => Effect::Add { to, value, narrow },
        M::Sub => Effect::Add {
            to,
            value: value.wrapping_neg(),
            narrow,
        },
        M::And => Effect::And {
            to,
            value: cut,
            narrow,
        },
        // Shifting a 32-bit register by zero still clears its upper half.
        M::Shl => Effect::Shift { to, count, narrow },
        _ => return None,
    })
}

fn zero_extend(to: Register, source: iced_x86::Register) -> Option<Effect> {
    use iced_x86::Register as R;
    let high_byte = matches!(source, R::AH | R::BH | R::CH | R::DH);
    let bits = match source.size() {
        1 if !high_byte => 8,
        2 => 16,
        _ => return None,
    };
    let from = general(source.full_register())?;
    Some(Effect::ZeroExtend { to, from, bits })
}

fn multiply(instruction: &Instruction, to: Register, narrow: bool) -> Option<Effect> {
    let by_constant = instruction.op_count() == 3 && instruction.op1_kind() == OpKind::Register;
    by_constant.then(|| {
        Some(Effect::Multiply {
            to,
            from: general(instruction.op1_register())?,
            value: instruction.immediate(2),
            narrow,
        })
    })?
}

fn lea(instruction: &Instruction, to: Register, narrow: bool) -> Option<Effect> {
    use iced_x86::Register as R;
    let (base, index) = (instruction.memory_base(), instruction.memory_index());
    let displacement = instruction.memory_displacement64();
    if base == R::RIP {
        let value = if narrow {
            displacement & 0xffff_ffff
        } else {
            displacement
        };
        return Some(Effect::Set { to, value });
    }
    // With a 67 prefix the sum is cut off before it is stored.
    if base.is_gpr32() || index.is_gpr32() || base == R::EIP {
        return None;
    }
    Some(Effect::Sum {
        to,
        base: general(base),
        index: general(index).map(|register| Index {
            register,
            scale: instruction.memory_index_scale() as u8,
        }),
        displacement,
        narrow,
    })
}
