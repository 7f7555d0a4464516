//! An instruction in the form that the walks need: what it computes, and where control goes.
//! [`sunder_x86`] tells it; here it becomes an [`Effect`], which can be computed forward and,
//! where possible, undone.

use super::effect::{Effect, Index, Register};
use iced_x86::{ConditionCode, Instruction, OpKind};
use sunder_x86::register::{RBP, RSP};
use sunder_x86::{Control, Does, Rule, Source, Value, values};

/// Whether a basic block ends with it.
pub(super) fn ends_block(instruction: &Instruction) -> bool {
    Control::of(instruction) != Control::Next
}

/// Whether the next instruction may be executed right after it, without a call of a function or of
/// the kernel in between.
pub(super) fn falls_through(instruction: &Instruction) -> bool {
    matches!(Control::of(instruction), Control::Next | Control::Branch(_))
}

/// The target of a direct jump.
pub(super) fn jump_target(instruction: &Instruction) -> Option<u64> {
    Control::of(instruction).jump_target()
}

/// What the flags must fulfil for a conditional jump to be taken.
pub(super) fn jump_condition(instruction: &Instruction) -> Option<ConditionCode> {
    let condition = instruction.condition_code();
    let is_jump = matches!(Control::of(instruction), Control::Branch(_));
    (is_jump && condition != ConditionCode::None).then_some(condition)
}

/// Whether it jumps to an address that the code does not tell, perhaps through a jump table. A
/// jump through a fixed slot (a tail call through the procedure linkage table) leaves the
/// function.
pub(super) fn jumps_anywhere(instruction: &Instruction) -> bool {
    Control::of(instruction) == Control::JumpThrough
        && !(instruction.op0_kind() == OpKind::Memory && instruction.is_ip_rel_memory_operand())
}

/// The effect of the instruction on registers.
pub(super) fn effect(instruction: &Instruction, does: &Does) -> Effect {
    const WIDE: u32 = 64;
    match values(instruction, does) {
        [
            Some(Value {
                register: a,
                rule: Rule::Copy(Source::Register(_)),
                bits: WIDE,
            }),
            Some(Value {
                register: b,
                rule: Rule::Copy(Source::Register(_)),
                ..
            }),
        ] => Effect::Swap { a, b },
        [
            Some(Value {
                rule: Rule::Copy(Source::Register(_)),
                ..
            }),
            Some(_),
        ] => Effect::Opaque,
        [
            Some(Value {
                register: RSP,
                rule: Rule::Add(Source::Register(RBP), _),
                ..
            }),
            Some(_),
        ] => Effect::Leave,
        [Some(value), _] => one(&value).unwrap_or(Effect::Opaque),
        [None, _] => Effect::Opaque,
    }
}

/// The effect on one register.
fn one(value: &Value) -> Option<Effect> {
    let to: Register = value.register;
    let own = Source::Register(to);
    let narrow = value.bits == 32;
    let cut = |value: u64| if narrow { value & 0xffff_ffff } else { value };
    Some(match value.rule {
        Rule::Copy(Source::Constant(value)) => Effect::Set {
            to,
            value: cut(value),
        },
        Rule::Copy(Source::Register(from)) => Effect::Copy { to, from, narrow },
        Rule::Copy(Source::Memory) if !narrow => Effect::Load { to },
        Rule::Add(a, Source::Constant(value)) if a == own => Effect::Add { to, value, narrow },
        Rule::Minus(a, Source::Constant(value)) if a == own => Effect::Add {
            to,
            value: value.wrapping_neg(),
            narrow,
        },
        Rule::Add(a, Source::Register(from)) if a == own => Effect::AddRegister {
            to,
            from,
            subtract: false,
            narrow,
        },
        Rule::Minus(a, Source::Register(from)) if a == own => Effect::AddRegister {
            to,
            from,
            subtract: true,
            narrow,
        },
        Rule::Address {
            base: None,
            index: None,
            displacement,
        } => Effect::Set {
            to,
            value: cut(displacement),
        },
        Rule::Address {
            base,
            index,
            displacement,
        } => Effect::Sum {
            to,
            base,
            index: index.map(|(register, scale)| Index { register, scale }),
            displacement,
            narrow,
        },
        Rule::Left(a, count) if a == own => Effect::Shift {
            to,
            count: count as u8,
            narrow,
        },
        Rule::Times(Source::Register(from), Source::Constant(value)) => Effect::Multiply {
            to,
            from,
            value,
            narrow,
        },
        Rule::And(a, Source::Constant(value)) if a == own => Effect::And {
            to,
            value: cut(value),
            narrow,
        },
        Rule::Low(Source::Register(from), bits) if bits < 32 => Effect::ZeroExtend {
            to,
            from,
            bits: bits as u8,
        },
        Rule::Signed(Source::Register(from), 32) if !narrow => Effect::SignExtend { to, from },
        _ => return None,
    })
}
