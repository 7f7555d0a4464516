//! What general registers hold after an instruction, as far as it follows from their values
//! before it, from constants and from its memory operand. Registers that are not listed have
//! unknown values.

use crate::does::Does;
use crate::memory::{is_conditional_move, is_repeated};
use crate::register::{RAX, RBP, RDX, RSP, general, wide};
use iced_x86::{Code, Instruction, Mnemonic, OpKind, Register};

/// A source of a new value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// The general register of this number, before the instruction.
    Register(u8),
    /// A constant.
    Constant(u64),
    /// The value that was read from memory.
    Memory,
    /// Not known.
    Unknown,
}

/// How a new value is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The value of the source.
    Copy(Source),
    /// The sum of both.
    Add(Source, Source),
    /// `base + index * scale + displacement`, as `lea` computes it.
    Address {
        /// The base register, if there is one.
        base: Option<u8>,
        /// The index register and its scale, if there is one.
        index: Option<(u8, u8)>,
        /// The constant; the whole address if it is relative to the instruction's end.
        displacement: u64,
    },
    /// The first minus the second.
    Minus(Source, Source),
    /// Bitwise and.
    And(Source, Source),
    /// Bitwise or.
    Or(Source, Source),
    /// Bitwise exclusive or.
    Xor(Source, Source),
    /// Bitwise complement.
    Not(Source),
    /// The lower half of the product.
    Times(Source, Source),
    /// The upper half of the unsigned product.
    HighTimes(Source, Source),
    /// An unknown number below this one, which is not zero; unsigned.
    Below(Source),
    /// Shifted to the left by a number of bits less than the register's width.
    Left(Source, u32),
    /// Shifted to the right; the upper bits become zero.
    Right(Source, u32),
    /// Shifted to the right; the upper bits become the sign.
    Arithmetic(Source, u32),
    /// This many low bits.
    Low(Source, u32),
    /// This many low bits, extended with their sign.
    Signed(Source, u32),
    /// One of the two.
    Either(Source, Source),
    /// This many low bits of the register are replaced by an unknown value; the others are
    /// kept.
    Part(u32),
}

/// The new value of a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Value {
    /// The register's number.
    pub register: u8,
    /// 32 or 64: the sources (but for [`Rule::Low`] and [`Rule::Signed`], which have a number
    /// of their own) and the result are truncated to this many bits, and the bits above are
    /// zero.
    pub bits: u32,
    /// How it is computed.
    pub rule: Rule,
}

/// The new values after `i`, where `does` is what `i` does. Each register occurs at most once.
#[must_use]
pub fn values(i: &Instruction, does: &Does) -> [Option<Value>; 2] {
    if is_repeated(i) {
        return [None; 2];
    }
    let two = stack(i).or_else(|| wide_product(i)).or_else(|| division(i));
    if let Some(values) = two.or_else(|| swap(i)) {
        return values;
    }
    let Some((register, bits)) = destination(i) else {
        return [part(i, does), None];
    };
    let value = |rule| Value {
        register,
        bits,
        rule,
    };
    if i.mnemonic() == Mnemonic::Lea {
        return [address(i, register, bits), None];
    }
    let is_cleared = bits == 32 && does.registers.cleared >> register & 1 != 0;
    let rule = rule(i, bits).or_else(|| is_cleared.then_some(Rule::Low(Source::Unknown, 32)));
    [rule.map(value), None]
}

/// The number of bytes by which a push or pop moves `rsp`; `None` if the instruction does not,
/// or if `rsp` is also its operand.
#[must_use]
pub fn step_of_stack(i: &Instruction) -> Option<i64> {
    use Mnemonic as M;
    let moves = match i.mnemonic() {
        M::Push | M::Pushfq | M::Pushf | M::Popfq | M::Popf | M::Call | M::Enter => true,
        M::Pop => i.op0_kind() != OpKind::Register || general(i.op0_register()) != Some(RSP),
        M::Ret => true,
        _ => false,
    };
    let step = i64::from(i.stack_pointer_increment());
    (moves && step != 0).then_some(step)
}

fn stack(i: &Instruction) -> Option<[Option<Value>; 2]> {
    let value = |register, rule| {
        Some(Value {
            register,
            bits: 64,
            rule,
        })
    };
    if i.code() == Code::Leaveq {
        let up = Rule::Add(Source::Register(RBP), Source::Constant(8));
        return Some([value(RSP, up), value(RBP, Rule::Copy(Source::Memory))]);
    }
    let step = step_of_stack(i)?;
    let moved = Rule::Add(Source::Register(RSP), Source::Constant(step as u64));
    let popped = match i.code() {
        Code::Pop_r64 | Code::Pop_rm64 if i.op0_kind() == OpKind::Register => {
            value(general(i.op0_register())?, Rule::Copy(Source::Memory))
        }
        _ => None,
    };
    Some([value(RSP, moved), popped])
}

/// A `mul` of 64 bits.
fn wide_product(i: &Instruction) -> Option<[Option<Value>; 2]> {
    if i.mnemonic() != Mnemonic::Mul {
        return None;
    }
    let other = match i.op0_kind() {
        OpKind::Register if i.op0_register().is_gpr64() => {
            Source::Register(general(i.op0_register())?)
        }
        OpKind::Memory if i.memory_size().size() == 8 => Source::Memory,
        _ => return None,
    };
    let value = |register, rule| {
        Some(Value {
            register,
            bits: 64,
            rule,
        })
    };
    let own = Source::Register(RAX);
    Some([
        value(RAX, Rule::Times(own, other)),
        value(RDX, Rule::HighTimes(own, other)),
    ])
}

/// An unsigned division of 32 or 64 bits; of the quotient nothing is known.
fn division(i: &Instruction) -> Option<[Option<Value>; 2]> {
    if i.mnemonic() != Mnemonic::Div {
        return None;
    }
    let (by, bits) = match i.op0_kind() {
        OpKind::Register => {
            let by = i.op0_register();
            (Source::Register(wide(by)?), (by.size() * 8) as u32)
        }
        _ => (Source::Memory, (i.memory_size().size() * 8) as u32),
    };
    let value = |register, rule| {
        Some(Value {
            register,
            bits,
            rule,
        })
    };
    let quotient = value(RAX, Rule::Low(Source::Unknown, 32)).filter(|_| bits == 32);
    (bits >= 32).then_some([quotient, value(RDX, Rule::Below(by))])
}

/// An exchange of two registers.
fn swap(i: &Instruction) -> Option<[Option<Value>; 2]> {
    let registers = i.op0_kind() == OpKind::Register && i.op1_kind() == OpKind::Register;
    if i.mnemonic() != Mnemonic::Xchg || !registers {
        return None;
    }
    let bits = (i.op0_register().size() * 8) as u32;
    let (a, b) = (wide(i.op0_register())?, wide(i.op1_register())?);
    let value = |register, from| {
        Some(Value {
            register,
            bits,
            rule: Rule::Copy(Source::Register(from)),
        })
    };
    Some([value(a, b), if a == b { None } else { value(b, a) }])
}

/// The first operand (or the register that takes its place), if it is a register of 32 or 64
/// bits that is written.
fn destination(i: &Instruction) -> Option<(u8, u32)> {
    match i.mnemonic() {
        Mnemonic::Cdqe => return Some((RAX, 64)),
        Mnemonic::Cwde => return Some((RAX, 32)),
        _ => {}
    }
    if i.op_count() == 0 || i.op0_kind() != OpKind::Register {
        return None;
    }
    let register = i.op0_register();
    Some((wide(register)?, (register.size() * 8) as u32))
}

/// The value for an instruction that writes 8 or 16 bits of one register and nothing else.
fn part(i: &Instruction, does: &Does) -> Option<Value> {
    if i.op_count() == 0 || i.op0_kind() != OpKind::Register {
        return None;
    }
    let to = i.op0_register();
    let register = general(to)?;
    let only = 1u16 << register;
    let written = does.registers;
    if written.written != only || written.kept != only {
        return None;
    }
    let bits = if written.bytes == only { 8 } else { 16 };
    Some(Value {
        register,
        bits: 64,
        rule: Rule::Part(bits),
    })
}

/// The value that `lea` computes; it ignores the segment. An address of 32 bits is truncated
/// before it is stored, and an operand of 32 bits truncates it when it is stored, with the same
/// result.
fn address(i: &Instruction, register: u8, bits: u32) -> Option<Value> {
    let (base, index) = (i.memory_base(), i.memory_index());
    let is_short = base.is_gpr32() || index.is_gpr32() || base == Register::EIP;
    let relative = matches!(base, Register::RIP | Register::EIP);
    let part = |register: Register| match register {
        Register::None => Some(None),
        other => wide(other).map(Some),
    };
    let base = if relative { None } else { part(base)? };
    Some(Value {
        register,
        bits: if is_short { 32 } else { bits },
        rule: Rule::Address {
            base,
            index: part(index)?.map(|index| (index, i.memory_index_scale() as u8)),
            displacement: i.memory_displacement64(),
        },
    })
}

/// How the first operand's new value is computed.
fn rule(i: &Instruction, bits: u32) -> Option<Rule> {
    use Mnemonic as M;
    let own = || source(i, 0);
    let other = || {
        if i.op_count() >= 2 {
            source(i, 1)
        } else {
            None
        }
    };
    let count = || Some(i.try_immediate(1).ok()? as u32 & (bits - 1));
    Some(match i.mnemonic() {
        M::Mov => Rule::Copy(other()?),
        M::Add => Rule::Add(own()?, other()?),
        M::Inc => Rule::Add(own()?, Source::Constant(1)),
        M::Dec => Rule::Add(own()?, Source::Constant(u64::MAX)),
        M::Xor | M::Sub if is_zeroing(i) => Rule::Copy(Source::Constant(0)),
        M::Sub => Rule::Minus(own()?, other()?),
        M::And => Rule::And(own()?, other()?),
        M::Or => Rule::Or(own()?, other()?),
        M::Xor => Rule::Xor(own()?, other()?),
        M::Not => Rule::Not(own()?),
        M::Neg => Rule::Minus(Source::Constant(0), own()?),
        M::Imul if i.op_count() == 2 => Rule::Times(own()?, other()?),
        M::Imul if i.op_count() == 3 => Rule::Times(other()?, source(i, 2)?),
        M::Shl | M::Sal => Rule::Left(own()?, count()?),
        M::Shr => Rule::Right(own()?, count()?),
        M::Sar => Rule::Arithmetic(own()?, count()?),
        M::Movzx => {
            let (from, bits) = narrow(i)?;
            Rule::Low(from, bits)
        }
        M::Movsx | M::Movsxd => {
            let (from, bits) = narrow(i)?;
            Rule::Signed(from, bits)
        }
        M::Cdqe => Rule::Signed(Source::Register(RAX), 32),
        M::Cwde => Rule::Signed(Source::Register(RAX), 16),
        mnemonic if is_conditional_move(mnemonic) => Rule::Either(own()?, other()?),
        _ => return None,
    })
}

fn is_zeroing(i: &Instruction) -> bool {
    i.op_count() == 2 && i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register()
}

/// Operand `number` of `i` as a source: a register of 32 or 64 bits, memory, or a constant.
#[must_use]
pub fn source(i: &Instruction, number: u32) -> Option<Source> {
    match i.op_kind(number) {
        OpKind::Register => wide(i.op_register(number)).map(Source::Register),
        OpKind::Memory => Some(Source::Memory),
        _ => Some(Source::Constant(i.try_immediate(number).ok()?)),
    }
}

/// The second operand of a sign or zero extension, and its width in bits.
fn narrow(i: &Instruction) -> Option<(Source, u32)> {
    if i.op1_kind() == OpKind::Memory {
        let bits = i.memory_size().size() as u32 * 8;
        return (8..=32).contains(&bits).then_some((Source::Memory, bits));
    }
    let register = i.op1_register();
    let bits = register.size() as u32 * 8;
    let is_high = matches!(
        register,
        Register::AH | Register::BH | Register::CH | Register::DH
    );
    let from = if is_high {
        Source::Unknown
    } else {
        Source::Register(general(register)?)
    };
    Some((from, bits))
}
