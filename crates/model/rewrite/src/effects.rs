//! The effects of an instruction on general registers, as sets of values: [`sunder_x86`] tells
//! the effects, and this applies them to the known values of registers and of slots of the
//! frame.

use crate::registers::Register;
use crate::values::Values;
pub(crate) use crate::values::{State, UNKNOWN};
use iced_x86::{Instruction, Mnemonic, OpKind};
use sunder_x86::register::{CHANGED_BY_KERNEL, KEPT_BY_CALLS};
use sunder_x86::{Does, Rule, Source, Value, source, values};

/// The effects of one instruction.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    /// Registers that it may change, one bit each.
    written: u32,
    /// New values that are known. Registers above the machine's are slots.
    known: [Option<Value>; 2],
    /// Whether it may write memory.
    stores: bool,
}

impl Effects {
    pub(crate) fn of(instruction: &Instruction, does: &Does) -> Self {
        Self {
            written: does.registers.written.into(),
            known: values(instruction, does),
            stores: does.writes_memory(),
        }
    }

    /// The same effects for an instruction whose memory operand is exactly a slot.
    pub(crate) fn with_slot(&self, i: &Instruction, slot: Register) -> Self {
        let mut new = self.clone();
        if self.stores {
            new.written |= slot.bit();
        }
        if i.mnemonic() == Mnemonic::Mov && i.op0_kind() == OpKind::Memory {
            if let Some(from) = source(i, 1) {
                let value = Value {
                    register: slot.0,
                    bits: 64,
                    rule: Rule::Copy(from),
                };
                new.known = [Some(value), None];
            }
            return new;
        }
        for known in new.known.iter_mut().flatten().filter(|k| k.bits == 64) {
            known.rule = with_memory(known.rule, Source::Register(slot.0));
        }
        new
    }

    /// The effects of a call to a function that returns.
    pub(crate) const fn of_called() -> Self {
        Self {
            written: !KEPT_BY_CALLS as u32,
            known: [None; 2],
            stores: true,
        }
    }

    /// The effects of a kernel call that uses no memory.
    pub(crate) const fn of_kernel_call() -> Self {
        Self {
            written: CHANGED_BY_KERNEL as u32,
            known: [None; 2],
            stores: false,
        }
    }

    /// The new value of the register that it computes is this one.
    pub(crate) const fn computes(&mut self, value: Value) {
        self.known = [Some(value), None];
    }

    /// Whether it may change this register.
    pub(crate) fn writes(&self, register: Register) -> bool {
        self.written & register.bit() != 0
    }

    /// The values after the instruction, from those before it.
    pub(crate) fn apply(&self, before: &State) -> State {
        let mut after = *before;
        for (number, value) in after.iter_mut().enumerate() {
            if self.written >> number & 1 != 0 {
                *value = None;
            }
        }
        for known in self.known.iter().flatten() {
            let register = Register(known.register);
            let value = evaluate(known, before);
            let is_slot = register.as_slot().is_some();
            after[register.index()] = value.filter(|v| !is_slot || v.only().is_some());
        }
        after
    }

    /// The registers from whose values before the instruction those of `needed` after it
    /// follow.
    pub(crate) fn sources(&self, needed: u32) -> u32 {
        let mut before = needed & !self.written;
        for known in self.known.iter().flatten() {
            if needed & Register(known.register).bit() != 0 {
                before |= registers(known);
            }
        }
        before
    }
}

/// The rule with a slot in place of memory, for copies, sums and differences.
fn with_memory(rule: Rule, slot: Source) -> Rule {
    let put = |from| match from {
        Source::Memory => slot,
        other => other,
    };
    match rule {
        Rule::Copy(a) => Rule::Copy(put(a)),
        Rule::Add(a, b) => Rule::Add(put(a), put(b)),
        Rule::Minus(a, b) => Rule::Minus(put(a), put(b)),
        other => other,
    }
}

/// The registers from which a new value is computed.
fn registers(value: &Value) -> u32 {
    let bit = |from| match from {
        Source::Register(number) => Register(number).bit(),
        Source::Constant(_) | Source::Memory | Source::Unknown => 0,
    };
    match value.rule {
        Rule::Add(a, b)
        | Rule::Minus(a, b)
        | Rule::And(a, b)
        | Rule::Or(a, b)
        | Rule::Xor(a, b)
        | Rule::Times(a, b)
        | Rule::HighTimes(a, b)
        | Rule::Either(a, b) => bit(a) | bit(b),
        Rule::Copy(a)
        | Rule::Below(a)
        | Rule::Not(a)
        | Rule::Left(a, _)
        | Rule::Right(a, _)
        | Rule::Arithmetic(a, _)
        | Rule::Low(a, _)
        | Rule::Signed(a, _) => bit(a),
        Rule::Address { base, index, .. } => {
            let index = index.map(|(index, _)| index);
            let both = [base, index].into_iter().flatten();
            both.fold(0, |all, number| all | Register(number).bit())
        }
        Rule::Part(_) => Register(value.register).bit(),
    }
}

/// The new value, from the values before.
fn evaluate(value: &Value, state: &State) -> Option<Values> {
    let all = unbounded(value, state);
    if value.bits < 64 {
        Some(Values::low_bits(all, value.bits))
    } else {
        all
    }
}

/// The new value before it is truncated.
fn unbounded(value: &Value, state: &State) -> Option<Values> {
    let bits = value.bits;
    let whole = |from| match from {
        Source::Register(number) => state[Register(number).index()],
        Source::Constant(value) => Some(Values::one(value)),
        Source::Memory | Source::Unknown => None,
    };
    let get = |from| match whole(from) {
        all if bits < 64 => Some(Values::low_bits(all, bits)),
        all => all,
    };
    let exactly = |a, b, compute: fn(u64, u64) -> u64| {
        let (a, b) = (get(a)?.only()?, get(b)?.only()?);
        Some(Values::one(compute(a, b)))
    };
    match value.rule {
        Rule::Copy(a) => get(a),
        // A constant is not truncated: minus one remains a step back.
        Rule::Add(a, Source::Constant(by)) => get(a)?.plus(Values::one(by)),
        Rule::Add(a, b) if a == b => get(a)?.times(2),
        Rule::Add(a, b) => get(a)?.plus(get(b)?),
        Rule::Address {
            base,
            index,
            displacement,
        } => {
            if let (Some(base), Some((index, scale))) = (base, index)
                && base == index
            {
                let all = get(Source::Register(base))?.times(u64::from(scale) + 1)?;
                return all.plus(Values::one(displacement));
            }
            let zero = Source::Constant(0);
            let base = base.map_or(zero, Source::Register);
            let (index, scale) = index.unwrap_or((0, 0));
            let index = if scale == 0 {
                zero
            } else {
                Source::Register(index)
            };
            get(base)?
                .plus(get(index)?.times(scale.into())?)?
                .plus(Values::one(displacement))
        }
        Rule::Minus(a, b) => get(a)?.minus(get(b)?),
        Rule::And(a, b) => Values::and(get(a), get(b)),
        Rule::Or(a, b) => exactly(a, b, |a, b| a | b),
        Rule::Xor(a, b) => exactly(a, b, |a, b| a ^ b),
        Rule::Not(a) => exactly(a, a, |a, _| !a),
        Rule::Times(a, b) => {
            let (a, b) = (get(a)?, get(b)?);
            match (a.only(), b.only()) {
                (Some(factor), _) => b.times(factor),
                (_, Some(factor)) => a.times(factor),
                _ => None,
            }
        }
        Rule::Below(a) => Some(Values::between(0, get(a)?.high.checked_sub(1)?)),
        Rule::HighTimes(a, b) => {
            exactly(a, b, |a, b| ((u128::from(a) * u128::from(b)) >> 64) as u64)
        }
        Rule::Left(a, by) => get(a)?.times(1 << by),
        Rule::Right(a, by) => {
            let all = Values::between(0, u64::MAX >> (64 - bits));
            Some(get(a).unwrap_or(all).shifted_right(by))
        }
        Rule::Arithmetic(a, by) => {
            let a = get(a)?.only()?;
            let away = 64 - bits;
            Some(Values::one(((a << away) as i64 >> away >> by) as u64))
        }
        Rule::Low(a, bits) => Some(Values::low_bits(whole(a), bits)),
        Rule::Signed(a, bits) => Values::signed_bits(whole(a), bits),
        Rule::Either(a, b) => Some(get(a)?.or(get(b)?)),
        Rule::Part(bits) => {
            let most = u64::MAX >> (64 - bits);
            let old = state[Register(value.register).index()]?;
            (old.high <= most).then(|| Values::between(0, most))
        }
    }
}
