//! What an instruction does to general registers, as far as their new values
//! follow from old ones.

use crate::registers::Register;
use crate::values::Values;
pub(crate) use crate::values::{State, UNKNOWN};
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as Iced};

/// What a new value follows from.
#[derive(Clone, Copy, Debug)]
enum From {
    Register(Register),
    Constant(u64),
    /// Memory: anything.
    Unknown,
}

/// How a register gets its new value. All in so many bits; what is above them
/// becomes zero.
#[derive(Clone, Copy, Debug)]
enum Rule {
    /// `base + index * scale + displacement`.
    Sum {
        base: From,
        index: From,
        scale: u64,
        displacement: u64,
    },
    Minus(From, From),
    And(From, From),
    Times(From, From),
    Left(From, u32),
    Right(From, u32),
    /// The low bits of something, and the same with their sign.
    Low(From, u32),
    Signed(From, u32),
    Either(From, From),
    /// So many low bits are replaced.
    Part(Register, u32),
    /// Computed only where both are single values.
    Exactly(fn(u64, u64) -> u64, From, From),
}

/// One register's new value.
#[derive(Clone, Copy, Debug)]
struct Known {
    register: Register,
    rule: Rule,
    /// 32 or 64.
    bits: u32,
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    /// Registers that it may change, one bit each.
    written: u32,
    /// Those whose new values are known.
    known: [Option<Known>; 2],
}

impl Effects {
    pub(crate) fn of(instruction: &Instruction, factory: &mut InstructionInfoFactory) -> Self {
        let mut written = 0;
        for used in factory.info(instruction).used_registers() {
            let reads = matches!(
                used.access(),
                OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
            );
            if let (false, Some(register)) = (reads, Register::of(used.register())) {
                written |= register.bit();
            }
        }
        Self {
            written,
            known: known(instruction),
        }
    }

    /// The same if its memory operand is all of a slot.
    pub(crate) fn with_slot(&self, i: &Instruction, slot: Register) -> Self {
        let mut new = self.clone();
        if writes_memory(i) {
            new.written |= slot.bit();
        }
        let value = |from: From| one(slot, moved(from, 0));
        let by_slot = |rule: Rule| {
            let to = destination(i).filter(|(_, bits)| *bits == 64);
            to.map_or([None; 2], |(register, _)| one(register, rule))
        };
        let own = || operand(i, 0).unwrap_or(From::Unknown);
        match (i.mnemonic(), i.op0_kind(), i.op1_kind()) {
            (Mnemonic::Mov, OpKind::Memory, _) => {
                if let Some(from) = operand(i, 1) {
                    new.known = value(from);
                }
            }
            (Mnemonic::Mov, _, OpKind::Memory) => {
                new.known = by_slot(moved(From::Register(slot), 0));
            }
            (Mnemonic::Add, OpKind::Register, OpKind::Memory) => {
                new.known = by_slot(Rule::Sum {
                    base: own(),
                    index: From::Register(slot),
                    scale: 1,
                    displacement: 0,
                });
            }
            (Mnemonic::Sub, OpKind::Register, OpKind::Memory) => {
                new.known = by_slot(Rule::Minus(own(), From::Register(slot)));
            }
            _ => {}
        }
        new
    }

    /// What a function does that is called and returns.
    pub(crate) const fn of_called() -> Self {
        // All but rbx, rsp, rbp and r12 to r15.
        Self {
            written: 0xffff & !0b1111_0000_0011_1000,
            known: [None; 2],
        }
    }

    /// What a kernel call does that uses no memory.
    pub(crate) const fn of_kernel_call() -> Self {
        Self {
            // rax, rcx and r11.
            written: 0b1000_0000_0011,
            known: [None; 2],
        }
    }

    /// Whether it may change this register.
    pub(crate) fn writes(&self, register: Register) -> bool {
        self.written & register.bit() != 0
    }

    /// The values after it, from those before.
    pub(crate) fn apply(&self, before: &State) -> State {
        let mut after = *before;
        for (number, value) in after.iter_mut().enumerate() {
            if self.written >> number & 1 != 0 {
                *value = None;
            }
        }
        for known in self.known.iter().flatten() {
            let value = known.value(before);
            let is_slot = known.register.as_slot().is_some();
            after[known.register.index()] = value.filter(|v| !is_slot || v.only().is_some());
        }
        after
    }

    /// The registers before it that the values of `needed` after it follow from.
    pub(crate) fn sources(&self, needed: u32) -> u32 {
        let mut before = needed & !self.written;
        for known in self.known.iter().flatten() {
            if needed & known.register.bit() != 0 {
                before |= known.rule.registers();
            }
        }
        before
    }
}

impl From {
    fn values(self, state: &State, bits: u32) -> Option<Values> {
        let values = match self {
            Self::Register(register) => state[register.index()],
            Self::Constant(value) => Some(Values::one(value)),
            Self::Unknown => None,
        };
        if bits < 64 {
            Some(Values::low_bits(values, bits))
        } else {
            values
        }
    }

    fn bit(self) -> u32 {
        match self {
            Self::Register(register) => register.bit(),
            Self::Constant(_) | Self::Unknown => 0,
        }
    }
}

impl Rule {
    fn registers(self) -> u32 {
        match self {
            Self::Sum {
                base: a, index: b, ..
            }
            | Self::Minus(a, b)
            | Self::And(a, b)
            | Self::Times(a, b)
            | Self::Either(a, b)
            | Self::Exactly(_, a, b) => a.bit() | b.bit(),
            Self::Left(a, _) | Self::Right(a, _) | Self::Low(a, _) | Self::Signed(a, _) => a.bit(),
            Self::Part(register, _) => register.bit(),
        }
    }
}

impl Known {
    fn value(&self, state: &State) -> Option<Values> {
        let values = self.unbounded(state);
        if self.bits < 64 {
            Some(Values::low_bits(values, self.bits))
        } else {
            values
        }
    }

    fn unbounded(&self, state: &State) -> Option<Values> {
        let get = |from: From| from.values(state, self.bits);
        match self.rule {
            Rule::Sum {
                base,
                index,
                scale,
                displacement,
            } => get(base)?
                .plus(get(index)?.times(scale)?)?
                .plus(Values::one(displacement)),
            Rule::Minus(a, b) => get(a)?.minus(get(b)?),
            Rule::And(a, b) => Values::and(get(a), get(b)),
            Rule::Times(a, b) => {
                let (a, b) = (get(a)?, get(b)?);
                match (a.only(), b.only()) {
                    (Some(factor), _) => b.times(factor),
                    (_, Some(factor)) => a.times(factor),
                    _ => None,
                }
            }
            Rule::Left(a, by) => get(a)?.times(1 << by),
            Rule::Right(a, by) => {
                let all = Values::between(0, u64::MAX >> (64 - self.bits));
                Some(get(a).unwrap_or(all).shifted_right(by))
            }
            Rule::Low(a, bits) => Some(Values::low_bits(a.values(state, 64), bits)),
            Rule::Signed(a, bits) => Values::signed_bits(a.values(state, 64), bits),
            Rule::Either(a, b) => Some(get(a)?.or(get(b)?)),
            Rule::Part(register, bits) => {
                let most = u64::MAX >> (64 - bits);
                let old = state[register.index()]?;
                (old.high <= most).then(|| Values::between(0, most))
            }
            Rule::Exactly(compute, a, b) => {
                let (a, b) = (get(a)?.only()?, get(b)?.only()?);
                Some(Values::one(compute(a, b)))
            }
        }
    }
}

/// Whether it may write its memory operand.
fn writes_memory(i: &Instruction) -> bool {
    let mut factory = InstructionInfoFactory::new();
    let info = factory.info(i);
    info.used_memory().iter().any(|memory| {
        !matches!(
            memory.access(),
            OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess | OpAccess::None
        )
    })
}

const fn one(register: Register, rule: Rule) -> [Option<Known>; 2] {
    let known = Known {
        register,
        rule,
        bits: 64,
    };
    [Some(known), None]
}

const fn moved(from: From, by: u64) -> Rule {
    Rule::Sum {
        base: from,
        index: From::Constant(0),
        scale: 1,
        displacement: by,
    }
}

/// The stack pointer after an instruction that pushes or pops.
fn stack(i: &Instruction) -> Option<[Option<Known>; 2]> {
    let rsp = Register::RSP;
    let by = match i.mnemonic() {
        Mnemonic::Push | Mnemonic::Call => i64::from(i.stack_pointer_increment()) as u64,
        // A pop into rsp is something else.
        Mnemonic::Pop if i.op0_kind() != OpKind::Register || i.op0_register() != Iced::RSP => {
            i64::from(i.stack_pointer_increment()) as u64
        }
        Mnemonic::Ret if i.op_count() == 0 => 8,
        Mnemonic::Leave if i.stack_pointer_increment() == 0 || i.op_count() == 0 => {
            return Some(one(rsp, moved(From::Register(Register::RBP), 8)));
        }
        _ => return None,
    };
    Some(if by == 0 {
        [None; 2]
    } else {
        one(rsp, moved(From::Register(rsp), by))
    })
}

/// The registers whose new values follow from the old ones.
fn known(i: &Instruction) -> [Option<Known>; 2] {
    if let Some(stack) = stack(i) {
        return stack;
    }
    if let Some(wide) = wide_product(i) {
        return wide;
    }
    let Some((register, bits)) = destination(i) else {
        return part(i);
    };
    let Some(rule) = rule(i, bits) else {
        // The upper half is zero whatever the lower is.
        let zeroed = (bits == 32 && writes_first(i)).then_some(Known {
            register,
            rule: Rule::Low(From::Unknown, 32),
            bits,
        });
        return [zeroed, None];
    };
    [
        Some(Known {
            register,
            rule,
            bits,
        }),
        None,
    ]
}

/// The register that the first operand is, if it is one of 32 or 64 bits.
fn destination(i: &Instruction) -> Option<(Register, u32)> {
    if i.op_count() == 0 || i.op0_kind() != OpKind::Register {
        return accumulator(i);
    }
    let register = i.op0_register();
    let bits = match (register.is_gpr64(), register.is_gpr32()) {
        (true, _) => 64,
        (_, true) => 32,
        _ => return None,
    };
    Some((Register::of(register)?, bits))
}

fn accumulator(i: &Instruction) -> Option<(Register, u32)> {
    match i.mnemonic() {
        Mnemonic::Cdqe => Some((Register::RAX, 64)),
        Mnemonic::Cwde => Some((Register::RAX, 32)),
        _ => None,
    }
}

/// Instructions that certainly write their first operand, of 32 bits.
fn writes_first(i: &Instruction) -> bool {
    matches!(
        i.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Movzx
            | Mnemonic::Movsx
            | Mnemonic::Movsxd
            | Mnemonic::Lea
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Not
            | Mnemonic::Neg
            | Mnemonic::Adc
            | Mnemonic::Sbb
    ) || i.mnemonic() == Mnemonic::Imul && i.op_count() >= 2
}

/// `mul` of 64 bits.
fn wide_product(i: &Instruction) -> Option<[Option<Known>; 2]> {
    if i.mnemonic() != Mnemonic::Mul
        || i.op0_kind() != OpKind::Register
        || !i.op0_register().is_gpr64()
    {
        return None;
    }
    let (a, b) = (
        From::Register(Register::RAX),
        From::Register(Register::whole(i.op0_register())?),
    );
    let known = |register, compute: fn(u64, u64) -> u64| {
        Some(Known {
            register,
            rule: Rule::Exactly(compute, a, b),
            bits: 64,
        })
    };
    Some([
        known(Register::RAX, u64::wrapping_mul),
        known(Register::RDX, |a, b| {
            ((u128::from(a) * u128::from(b)) >> 64) as u64
        }),
    ])
}

/// The low 8 or 16 bits of a register are written, or may be.
fn part(i: &Instruction) -> [Option<Known>; 2] {
    if i.op_count() == 0 || i.op0_kind() != OpKind::Register {
        return [None; 2];
    }
    let register = i.op0_register();
    let high = matches!(register, Iced::AH | Iced::BH | Iced::CH | Iced::DH);
    let bits = match (register.is_gpr8(), register.is_gpr16()) {
        (true, _) if !high => 8,
        (_, true) => 16,
        _ => return [None; 2],
    };
    // What else such an instruction writes is not known.
    let only = matches!(
        i.mnemonic(),
        Mnemonic::Mov
            | Mnemonic::Add
            | Mnemonic::Sub
            | Mnemonic::And
            | Mnemonic::Or
            | Mnemonic::Xor
            | Mnemonic::Seta
            | Mnemonic::Setae
            | Mnemonic::Setb
            | Mnemonic::Setbe
            | Mnemonic::Sete
            | Mnemonic::Setne
            | Mnemonic::Setl
            | Mnemonic::Setle
            | Mnemonic::Setg
            | Mnemonic::Setge
    );
    match Register::of(register) {
        Some(whole) if only => one(whole, Rule::Part(whole, bits)),
        _ => [None; 2],
    }
}

/// How the first operand gets its value.
fn rule(i: &Instruction, bits: u32) -> Option<Rule> {
    let own = || operand(i, 0);
    let other = || {
        if i.op_count() >= 2 {
            operand(i, 1)
        } else {
            None
        }
    };
    let count = || Some(i.try_immediate(1).ok()? as u32 & (bits - 1));
    Some(match i.mnemonic() {
        Mnemonic::Mov => match other()? {
            From::Unknown => return None,
            from => moved(from, 0),
        },
        Mnemonic::Lea => address(i)?,
        Mnemonic::Add => Rule::Sum {
            base: own()?,
            index: other()?,
            scale: 1,
            displacement: 0,
        },
        Mnemonic::Inc => moved(own()?, 1),
        Mnemonic::Dec => moved(own()?, u64::MAX),
        Mnemonic::Xor | Mnemonic::Sub if is_zeroing(i) => moved(From::Constant(0), 0),
        Mnemonic::Sub => Rule::Minus(own()?, other()?),
        Mnemonic::And => Rule::And(own()?, other()?),
        Mnemonic::Or => Rule::Exactly(|a, b| a | b, own()?, other()?),
        Mnemonic::Xor => Rule::Exactly(|a, b| a ^ b, own()?, other()?),
        Mnemonic::Not => Rule::Exactly(|a, _| !a, own()?, From::Constant(0)),
        Mnemonic::Neg => Rule::Minus(From::Constant(0), own()?),
        Mnemonic::Imul if i.op_count() == 2 => Rule::Times(own()?, other()?),
        Mnemonic::Imul if i.op_count() == 3 => Rule::Times(other()?, operand(i, 2)?),
        Mnemonic::Shl | Mnemonic::Sal => Rule::Left(own()?, count()?),
        Mnemonic::Shr => Rule::Right(own()?, count()?),
        Mnemonic::Sar if bits == 64 => Rule::Exactly(
            |a, by| (a as i64 >> by) as u64,
            own()?,
            From::Constant(count()?.into()),
        ),
        Mnemonic::Sar => Rule::Exactly(
            |a, by| (a as u32 as i32 >> by) as u32 as u64,
            own()?,
            From::Constant(count()?.into()),
        ),
        Mnemonic::Movzx => {
            let (from, bits) = narrow(i)?;
            Rule::Low(from, bits)
        }
        Mnemonic::Movsx | Mnemonic::Movsxd => {
            let (from, bits) = narrow(i)?;
            Rule::Signed(from, bits)
        }
        Mnemonic::Cdqe => Rule::Signed(From::Register(Register::RAX), 32),
        Mnemonic::Cwde => Rule::Signed(From::Register(Register::RAX), 16),
        mnemonic if is_conditional_move(mnemonic) => Rule::Either(own()?, other()?),
        _ => return None,
    })
}

fn is_zeroing(i: &Instruction) -> bool {
    i.op_count() == 2 && i.op1_kind() == OpKind::Register && i.op0_register() == i.op1_register()
}

const fn is_conditional_move(mnemonic: Mnemonic) -> bool {
    matches!(
        mnemonic,
        Mnemonic::Cmova
            | Mnemonic::Cmovae
            | Mnemonic::Cmovb
            | Mnemonic::Cmovbe
            | Mnemonic::Cmove
            | Mnemonic::Cmovne
            | Mnemonic::Cmovg
            | Mnemonic::Cmovge
            | Mnemonic::Cmovl
            | Mnemonic::Cmovle
            | Mnemonic::Cmovs
            | Mnemonic::Cmovns
    )
}

/// An operand of 32 or 64 bits, or a constant.
fn operand(i: &Instruction, number: u32) -> Option<From> {
    match i.op_kind(number) {
        OpKind::Register => {
            let register = i.op_register(number);
            let fits = register.is_gpr64() || register.is_gpr32();
            fits.then(|| Register::of(register).map(From::Register))?
        }
        OpKind::Memory => Some(From::Unknown),
        _ => Some(From::Constant(i.try_immediate(number).ok()?)),
    }
}

/// The second operand of an extension, and its bits.
fn narrow(i: &Instruction) -> Option<(From, u32)> {
    if i.op1_kind() == OpKind::Memory {
        let bits = i.memory_size().size() as u32 * 8;
        return (8..=32).contains(&bits).then_some((From::Unknown, bits));
    }
    let register = i.op1_register();
    let bits = register.size() as u32 * 8;
    let high = matches!(register, Iced::AH | Iced::BH | Iced::CH | Iced::DH);
    let from = Register::of(register)?;
    Some(match high {
        true => (From::Unknown, bits),
        false => (From::Register(from), bits),
    })
}

/// The address that a `lea` computes.
fn address(i: &Instruction) -> Option<Rule> {
    let part = |register: Iced| match register {
        Iced::None => Some(From::Constant(0)),
        other => Register::whole(other).map(From::Register),
    };
    if i.memory_base() == Iced::RIP {
        return Some(moved(From::Constant(i.memory_displacement64()), 0));
    }
    Some(Rule::Sum {
        base: part(i.memory_base())?,
        index: part(i.memory_index())?,
        scale: u64::from(i.memory_index_scale()),
        displacement: i.memory_displacement64(),
    })
}
