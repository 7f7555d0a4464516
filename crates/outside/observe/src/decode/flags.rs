//! What instructions do to the processor's flags, and whether a conditional jump could have gone a
//! given way with the registers that are known. Used by `ways`. It evaluates only comparisons and
//! results of registers; for all else the answer is "it may have".

use super::effect::{KnownRegisters, Register};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpKind};

/// The effect of an instruction on the flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flags {
    /// It leaves them as they are.
    Kept,
    /// They follow from the registers, which the instruction does not change.
    Compared { how: How, a: Part, b: Operand },
    /// Zero and sign are those of a register after the instruction; the others are not known.
    Result(Part),
    /// They can't be computed.
    Unknown,
}

/// How two operands are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// `cmp`.
    Difference,
    /// `test`.
    CommonBits,
}

/// The low bits of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    register: Register,
    bits: u32,
}

/// The second operand of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operand {
    Register(Register),
    Constant(u64),
}

/// A conditional jump that was or was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Decision {
    pub condition: ConditionCode,
    pub taken: bool,
}

/// The flags that conditions read, without parity.
struct Values {
    zero: bool,
    sign: bool,
    /// `None` where only zero and sign are known.
    carry_and_overflow: Option<(bool, bool)>,
}

impl Flags {
    pub(super) fn of(instruction: &Instruction) -> Self {
        if sunder_x86::Flags::of(instruction).changed == 0 {
            return Self::Kept;
        }
        let Some(first) = Part::of(instruction) else {
            return Self::Unknown;
        };
        let compared = |how| match Operand::of(instruction, first.bits) {
            Some(b) => Self::Compared { how, a: first, b },
            None => Self::Unknown,
        };
        match instruction.mnemonic() {
            Mnemonic::Cmp => compared(How::Difference),
            Mnemonic::Test => compared(How::CommonBits),
            Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::Inc
            | Mnemonic::Dec
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor => Self::Result(first),
            _ => Self::Unknown,
        }
    }

    /// Whether `decision` may have been made with the flags of this instruction, given the
    /// registers after it.
    pub(super) fn allow(self, decision: Decision, after: &KnownRegisters) -> bool {
        let values = match self {
            Self::Kept | Self::Unknown => None,
            Self::Result(part) => part.value(after).map(|value| Values {
                zero: value == 0,
                sign: is_negative(value, part.bits),
                carry_and_overflow: None,
            }),
            Self::Compared { how, a, b } => {
                let b = match b {
                    Operand::Register(register) => Part { register, ..a }.value(after),
                    Operand::Constant(value) => Some(value & mask(a.bits)),
                };
                let both = a.value(after).zip(b);
                both.map(|(x, y)| Values::of(how, x, y, a.bits))
            }
        };
        values
            .and_then(|values| values.fulfil(decision.condition))
            .is_none_or(|fulfilled| fulfilled == decision.taken)
    }
}

impl Part {
    /// The first operand, if it is a register's low bits.
    fn of(instruction: &Instruction) -> Option<Self> {
        (instruction.op0_kind() == OpKind::Register).then_some(())?;
        low_part(instruction.op0_register())
    }

    fn value(self, known: &KnownRegisters) -> Option<u64> {
        Some(known.get(self.register)? & mask(self.bits))
    }
}

impl Operand {
    /// The second operand, if it is a register of `bits` bits or a constant.
    fn of(instruction: &Instruction, bits: u32) -> Option<Self> {
        match instruction.op1_kind() {
            OpKind::Register => low_part(instruction.op1_register())
                .filter(|part| part.bits == bits)
                .map(|part| Self::Register(part.register)),
            OpKind::Memory => None,
            _ => instruction.try_immediate(1).ok().map(Self::Constant),
        }
    }
}

/// A general register and how many of its low bits the name stands for; `None` for `ah` and its
/// like.
fn low_part(register: iced_x86::Register) -> Option<Part> {
    use iced_x86::Register as R;
    let is_high = matches!(register, R::AH | R::BH | R::CH | R::DH);
    (register.is_gpr() && !is_high).then(|| Part {
        register: register.full_register().number() as Register,
        bits: register.size() as u32 * 8,
    })
}

const fn mask(bits: u32) -> u64 {
    u64::MAX >> (64 - bits)
}

const fn is_negative(value: u64, bits: u32) -> bool {
    value >> (bits - 1) & 1 == 1
}

impl Values {
    /// The flags after comparing `x` with `y`, which have no bits above `bits`.
    fn of(how: How, x: u64, y: u64, bits: u32) -> Self {
        let result = match how {
            How::Difference => x.wrapping_sub(y) & mask(bits),
            How::CommonBits => x & y,
        };
        let sign = is_negative(result, bits);
        let overflow = is_negative(x, bits) != is_negative(y, bits) && sign != is_negative(x, bits);
        Self {
            zero: result == 0,
            sign,
            carry_and_overflow: Some(match how {
                How::Difference => (x < y, overflow),
                How::CommonBits => (false, false),
            }),
        }
    }

    /// Whether they fulfil a condition, if that can be said.
    fn fulfil(&self, condition: ConditionCode) -> Option<bool> {
        let Self { zero, sign, .. } = *self;
        Some(match condition {
            ConditionCode::e => zero,
            ConditionCode::ne => !zero,
            ConditionCode::s => sign,
            ConditionCode::ns => !sign,
            _ => {
                let (carry, overflow) = self.carry_and_overflow?;
                match condition {
                    ConditionCode::o => overflow,
                    ConditionCode::no => !overflow,
                    ConditionCode::b => carry,
                    ConditionCode::ae => !carry,
                    ConditionCode::be => carry || zero,
                    ConditionCode::a => !carry && !zero,
                    ConditionCode::l => sign != overflow,
                    ConditionCode::ge => sign == overflow,
                    ConditionCode::le => zero || sign != overflow,
                    ConditionCode::g => !zero && sign == overflow,
                    _ => return None,
                }
            }
        })
    }
}
