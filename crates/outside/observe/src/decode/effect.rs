//! The effects of instructions on general registers, as far as they can be computed without
//! memory, forward and (where they can be undone) backward. Registers have their x86-64
//! encoding numbers.

pub(super) use sunder_x86::register::{RBP, RSP};

/// A register number, 0 to 15.
pub(super) type Register = u8;

/// The registers whose values are known.
#[derive(Clone, Debug)]
pub(super) struct KnownRegisters {
    values: [u64; 16],
    /// Bit `r`: the value of register `r` is known.
    known: u16,
}

impl KnownRegisters {
    /// All registers of a sample.
    pub(super) const fn all(values: [u64; 16]) -> Self {
        Self {
            values,
            known: u16::MAX,
        }
    }

    /// The value of a register, if known.
    pub(super) fn get(&self, register: Register) -> Option<u64> {
        let index = usize::from(register & 15);
        (self.known >> index & 1 == 1).then(|| self.values[index])
    }

    fn set(&mut self, register: Register, value: Option<u64>) {
        let index = usize::from(register & 15);
        match value {
            Some(value) => {
                self.values[index] = value;
                self.known |= 1 << index;
            }
            None => self.known &= !(1 << index),
        }
    }

    /// No register is known.
    pub(super) const fn nothing() -> Self {
        Self {
            values: [0; 16],
            known: 0,
        }
    }

    /// Adds the values of the registers in a mask.
    pub(super) const fn learn(&mut self, mut registers: u16, values: &[u64; 16]) {
        self.known |= registers;
        while registers != 0 {
            let index = registers.trailing_zeros() as usize;
            self.values[index] = values[index];
            registers &= registers - 1;
        }
    }

    const fn forget(&mut self, registers: u16) {
        self.known &= !registers;
    }
}

/// An index register and its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Index {
    pub register: Register,
    pub scale: u8,
}

/// The effect of an instruction on registers. `narrow` operations are 32 bits wide and clear
/// the upper half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// An effect that can't be computed.
    Opaque,
    /// `mov` of 8 bytes from memory; the value is not known.
    Load { to: Register },
    /// A constant.
    Set { to: Register, value: u64 },
    /// `mov`.
    Copy {
        to: Register,
        from: Register,
        narrow: bool,
    },
    /// `add`, `sub`, `inc`, `dec` of a constant, `push`, `pop`.
    Add {
        to: Register,
        value: u64,
        narrow: bool,
    },
    /// `add` and `sub` of a register.
    AddRegister {
        to: Register,
        from: Register,
        subtract: bool,
        narrow: bool,
    },
    /// `lea`.
    Sum {
        to: Register,
        base: Option<Register>,
        index: Option<Index>,
        displacement: u64,
        narrow: bool,
    },
    /// `shl` by a constant.
    Shift {
        to: Register,
        count: u8,
        narrow: bool,
    },
    /// `imul` by a constant.
    Multiply {
        to: Register,
        from: Register,
        value: u64,
        narrow: bool,
    },
    /// `and` with a constant.
    And {
        to: Register,
        value: u64,
        narrow: bool,
    },
    /// `movzx`, from the low `bits`.
    ZeroExtend {
        to: Register,
        from: Register,
        bits: u8,
    },
    /// `movsxd`, `cdqe`: from the low 32 bits.
    SignExtend { to: Register, from: Register },
    /// `xchg` of two registers.
    Swap { a: Register, b: Register },
    /// `leave`: `rsp` becomes `rbp` + 8.
    Leave,
}

const fn cut(value: u64, narrow: bool) -> u64 {
    if narrow { value & 0xffff_ffff } else { value }
}

impl Effect {
    /// Computes the registers after an instruction from those before it. `writes` are all
    /// registers that it may change.
    pub(super) fn forward(self, writes: u16, known: &mut KnownRegisters) {
        if let Self::Swap { a, b } = self {
            let (old_a, old_b) = (known.get(a), known.get(b));
            known.set(a, old_b);
            known.set(b, old_a);
            return;
        }
        let result = self.compute(known);
        known.forget(writes);
        if let Some((to, value)) = result {
            known.set(to, Some(value));
        }
    }

    /// Whether the instruction loads a value that may be a pointer.
    pub(super) const fn is_load(self) -> bool {
        matches!(self, Self::Load { .. })
    }

    /// The registers that hold loaded values (perhaps plus something known) after the
    /// instruction, from those that do before it.
    pub(super) fn loaded(self, writes: u16, loaded: u16) -> u16 {
        let bit = |register: Register| 1 << (register & 15);
        let (to, is_loaded) = match self {
            Self::Load { to } => (to, true),
            Self::Copy { to, from, .. } => (to, loaded & bit(from) != 0),
            Self::Add { to, .. } => (to, loaded & bit(to) != 0),
            Self::AddRegister { to, from, .. } => (to, loaded & (bit(to) | bit(from)) != 0),
            Self::Sum {
                to, base, index, ..
            } => {
                let base = match base {
                    Some(base) => bit(base),
                    None => 0,
                };
                let index = match index {
                    Some(index) => bit(index.register),
                    None => 0,
                };
                (to, loaded & (base | index) != 0)
            }
            // Rather too many registers than too few.
            Self::Swap { a, b } => {
                let both = bit(a) | bit(b);
                return if loaded & both != 0 {
                    loaded | both
                } else {
                    loaded
                };
            }
            _ => return loaded & !writes,
        };
        loaded & !writes | if is_loaded { bit(to) } else { 0 }
    }

    /// The register that is computed, and its new value.
    fn compute(self, known: &KnownRegisters) -> Option<(Register, u64)> {
        let get = |register| known.get(register);
        Some(match self {
            Self::Opaque | Self::Load { .. } | Self::Swap { .. } => return None,
            Self::Set { to, value } => (to, value),
            Self::Copy { to, from, narrow } => (to, cut(get(from)?, narrow)),
            Self::Add { to, value, narrow } => (to, cut(get(to)?.wrapping_add(value), narrow)),
            Self::AddRegister {
                to,
                from,
                subtract,
                narrow,
            } => {
                let (old, other) = (get(to)?, get(from)?);
                let sum = if subtract {
                    old.wrapping_sub(other)
                } else {
                    old.wrapping_add(other)
                };
                (to, cut(sum, narrow))
            }
            Self::Sum {
                to,
                base,
                index,
                displacement,
                narrow,
            } => {
                let base = base.map_or(Some(0), get)?;
                let index = scaled(index, known)?;
                let sum = base.wrapping_add(index).wrapping_add(displacement);
                (to, cut(sum, narrow))
            }
            Self::Shift { to, count, narrow } => (to, cut(get(to)? << count, narrow)),
            Self::Multiply {
                to,
                from,
                value,
                narrow,
            } => (to, cut(get(from)?.wrapping_mul(value), narrow)),
            Self::And { to, value, narrow } => (to, cut(get(to)? & value, narrow)),
            Self::ZeroExtend { to, from, bits } => (to, get(from)? & ((1 << bits) - 1)),
            Self::SignExtend { to, from } => (to, get(from)? as i32 as i64 as u64),
            Self::Leave => (RSP, get(RBP)?.wrapping_add(8)),
        })
    }

    /// Computes the registers before an instruction from those after it.
    pub(super) fn backward(self, writes: u16, known: &mut KnownRegisters) {
        if !self.can_be_undone() {
            known.forget(writes);
            return;
        }
        let after = known.clone();
        known.forget(writes);
        match self {
            Self::Add {
                to,
                value,
                narrow: false,
            } => known.set(to, after.get(to).map(|new| new.wrapping_sub(value))),
            Self::AddRegister {
                to,
                from,
                subtract,
                narrow: false,
            } if to != from => {
                let old = after.get(to).zip(after.get(from)).map(|(new, other)| {
                    if subtract {
                        new.wrapping_add(other)
                    } else {
                        new.wrapping_sub(other)
                    }
                });
                known.set(to, old);
            }
            Self::Copy {
                to,
                from,
                narrow: false,
            } if known.get(from).is_none() => known.set(from, after.get(to)),
            Self::Sum { narrow: false, .. } => self.undo_sum(&after, known),
            Self::Swap { a, b } => {
                known.set(a, after.get(b));
                known.set(b, after.get(a));
            }
            Self::Leave => known.set(RBP, after.get(RSP).map(|new| new.wrapping_sub(8))),
            _ => {}
        }
    }

    /// Whether `backward` can learn anything from the registers after the instruction.
    const fn can_be_undone(self) -> bool {
        matches!(
            self,
            Self::Add { narrow: false, .. }
                | Self::AddRegister { narrow: false, .. }
                | Self::Copy { narrow: false, .. }
                | Self::Sum { narrow: false, .. }
                | Self::Swap { .. }
                | Self::Leave
        )
    }

    /// Solves `to = base + index * scale + displacement` for the base, or for an unscaled
    /// index, if the other one is known.
    fn undo_sum(self, after: &KnownRegisters, before: &mut KnownRegisters) {
        let Self::Sum {
            to,
            base,
            index,
            displacement,
            ..
        } = self
        else {
            return;
        };
        let Some(sum) = after.get(to).map(|sum| sum.wrapping_sub(displacement)) else {
            return;
        };
        match (base, index) {
            (Some(base), _) if index.map(|i| i.register) != Some(base) => {
                if before.get(base).is_none() {
                    if let Some(index) = scaled(index, before) {
                        before.set(base, Some(sum.wrapping_sub(index)));
                    }
                } else if let Some(Index { register, scale: 1 }) = index
                    && before.get(register).is_none()
                {
                    let rest = before.get(base).map(|base| sum.wrapping_sub(base));
                    before.set(register, rest);
                }
            }
            (None, Some(Index { register, scale: 1 })) if before.get(register).is_none() => {
                before.set(register, Some(sum));
            }
            _ => {}
        }
    }
}

/// The value of an index; zero if there is none, `None` if it is unknown.
pub(super) fn scaled(index: Option<Index>, known: &KnownRegisters) -> Option<u64> {
    match index {
        None => Some(0),
        Some(Index { register, scale }) => {
            Some(known.get(register)?.wrapping_mul(u64::from(scale)))
        }
    }
}
