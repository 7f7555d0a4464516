//! What an instruction does to general registers, as far as their new values
//! follow from old ones.

use crate::registers::Register;
use iced_x86::{Instruction, InstructionInfoFactory, Mnemonic, OpAccess, OpKind, Register as Iced};

/// Values of registers; `None` is not known.
pub(crate) type State = [Option<u64>; 16];

/// How a register gets its new value.
#[derive(Clone, Copy, Debug)]
enum Value {
    Constant(u64),
    /// `base + index * scale + displacement`.
    Sum {
        base: Option<Register>,
        index: Option<Register>,
        scale: u64,
        displacement: u64,
    },
}

/// What an instruction does.
#[derive(Clone, Debug)]
pub(crate) struct Effects {
    /// Registers that it may change, one bit each.
    written: u16,
    /// The one whose new value is known.
    known: Option<(Register, Value)>,
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

    /// The values after it, from those before.
    pub(crate) fn apply(&self, before: &State) -> State {
        let mut after = *before;
        for (number, value) in after.iter_mut().enumerate() {
            if self.written >> number & 1 != 0 {
                *value = None;
            }
        }
        if let Some((register, value)) = self.known {
            after[register.index()] = value.from(before);
        }
        after
    }

    /// The registers before it that the values of `needed` after it follow from.
    pub(crate) fn sources(&self, needed: u16) -> u16 {
        let mut before = needed & !self.written;
        if let Some((register, value)) = self.known
            && needed & register.bit() != 0
        {
            before &= !register.bit();
            if let Value::Sum { base, index, .. } = value {
                before |= base.map_or(0, Register::bit) | index.map_or(0, Register::bit);
            }
        }
        before
    }
}

impl Value {
    fn from(self, state: &State) -> Option<u64> {
        let get = |register: Option<Register>| register.map_or(Some(0), |r| state[r.index()]);
        match self {
            Self::Constant(value) => Some(value),
            Self::Sum {
                base,
                index,
                scale,
                displacement,
            } => Some(
                get(base)?
                    .wrapping_add(get(index)?.wrapping_mul(scale))
                    .wrapping_add(displacement),
            ),
        }
    }
}

const fn moved(from: Register, by: u64) -> Value {
    Value::Sum {
        base: Some(from),
        index: None,
        scale: 1,
        displacement: by,
    }
}

/// The register whose new value follows from the old values.
fn known(i: &Instruction) -> Option<(Register, Value)> {
    let immediate = |operand: u32| i.try_immediate(operand).ok();
    match i.mnemonic() {
        Mnemonic::Push | Mnemonic::Call => {
            let by = i64::from(i.stack_pointer_increment());
            return (by != 0).then(|| (Register::RSP, moved(Register::RSP, by as u64)));
        }
        // A pop into rsp is something else.
        Mnemonic::Pop if i.op0_kind() != OpKind::Register || i.op0_register() != Iced::RSP => {
            let by = i64::from(i.stack_pointer_increment());
            return (by != 0).then(|| (Register::RSP, moved(Register::RSP, by as u64)));
        }
        Mnemonic::Ret if i.op_count() == 0 => {
            return Some((Register::RSP, moved(Register::RSP, 8)));
        }
        Mnemonic::Leave if i.stack_pointer_increment() == 0 || i.op_count() == 0 => {
            return Some((Register::RSP, moved(Register::RBP, 8)));
        }
        _ => {}
    }
    if i.op_count() < 2 || i.op0_kind() != OpKind::Register {
        return None;
    }
    let whole = Register::whole(i.op0_register());
    match i.mnemonic() {
        Mnemonic::Mov => {
            if i.op1_kind() == OpKind::Register {
                return Some((whole?, moved(Register::whole(i.op1_register())?, 0)));
            }
            let value = immediate(1)?;
            if i.op0_register().is_gpr32() {
                let value = u64::from(value as u32);
                return Some((Register::of(i.op0_register())?, Value::Constant(value)));
            }
            Some((whole?, Value::Constant(value)))
        }
        Mnemonic::Lea => address(i).map(|value| whole.map(|r| (r, value)))?,
        Mnemonic::Add => {
            let value = immediate(1)?;
            Some((whole?, moved(whole?, value)))
        }
        Mnemonic::Sub => {
            let value = immediate(1)?;
            Some((whole?, moved(whole?, value.wrapping_neg())))
        }
        Mnemonic::Xor if i.op1_kind() == OpKind::Register => {
            let same = i.op0_register() == i.op1_register();
            let wide = i.op0_register().is_gpr64() || i.op0_register().is_gpr32();
            let register = Register::of(i.op0_register())?;
            (same && wide).then_some((register, Value::Constant(0)))
        }
        _ => None,
    }
}

/// The address that a `lea` computes.
fn address(i: &Instruction) -> Option<Value> {
    let part = |register: Iced| match register {
        Iced::None => Some(None),
        other => Register::whole(other).map(Some),
    };
    if i.memory_base() == Iced::RIP {
        return Some(Value::Constant(i.memory_displacement64()));
    }
    Some(Value::Sum {
        base: part(i.memory_base())?,
        index: part(i.memory_index())?,
        scale: u64::from(i.memory_index_scale()),
        displacement: i.memory_displacement64(),
    })
}
