//! The values of the data-flow analysis in [`crate::flow`]: addresses inside objects, addresses in
//! the stack frame, and numbers that are known at least to be multiples of something. Pure.

use crate::answer::Storage;
use crate::types::TypeId;
use std::collections::BTreeMap;

/// An address inside an object: what a memory operand touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Touched {
    pub(crate) ty: TypeId,
    /// Not yet reduced to the type's size.
    pub(crate) offset: i64,
    /// The offset is known up to multiples of this; 0 if it is exact.
    pub(crate) modulo: u64,
    pub(crate) storage: Storage,
    pub(crate) origin: Origin,
    /// The call that returned the address, by the address after it; 0 if none.
    pub(crate) call: u64,
}

/// The variable that a pointer came from: an index into the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin(pub(crate) u32);

/// The origin of an address whose variable is not known.
pub(crate) const NOWHERE: Origin = Origin(u32::MAX);

/// `factor` times something unknown, plus `plus`. The unknown has a number, so
/// that `i + i + i` is seen to be a multiple of three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number {
    unknown: u64,
    pub(crate) factor: i64,
    pub(crate) plus: i64,
}

impl Number {
    pub(crate) const fn is_constant(self) -> bool {
        self.factor == 0
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Number(Number),
    /// The canonical frame address plus a constant.
    Frame(i64),
    /// An address within an object.
    Inside(Touched),
}

/// The values at one instruction, before it is executed.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct State {
    /// By x86-64 encoding number.
    pub(crate) registers: [Value; 16],
    /// Spilled values by frame offset.
    pub(crate) slots: BTreeMap<i64, Value>,
}

const RSP: usize = 4;
const RBP: usize = 5;

/// Numbers the unknown value that the instruction at `ip` leaves in register `r`.
pub(crate) const fn unknown_of(ip: u64, r: usize) -> u64 {
    ip << 5 | r as u64
}

/// Numbers the unknown value of register `r` where two paths join at `ip`.
const fn met_at(ip: u64, r: usize) -> u64 {
    unknown_of(ip, r) | 16
}

impl State {
    /// The state at a function's first instruction: the return address lies below the canonical
    /// frame address.
    pub(crate) fn at_entry(ip: u64) -> Self {
        let mut state = Self {
            registers: unknowns(ip),
            slots: BTreeMap::new(),
        };
        state.registers[RSP] = Value::Frame(-8);
        state
    }

    /// A state in which only the stack and frame pointers are known.
    pub(crate) fn frame_only(&self, ip: u64) -> Self {
        let mut registers = unknowns(ip);
        for r in [RSP, RBP] {
            if matches!(self.registers[r], Value::Frame(_)) {
                registers[r] = self.registers[r];
            }
        }
        Self {
            registers,
            slots: BTreeMap::new(),
        }
    }

    /// The instruction at `ip` writes an unknown value to `r`. If an earlier iteration of a loop
    /// left the same unknown elsewhere, that gets another number.
    pub(crate) fn set_unknown(&mut self, r: usize, ip: u64) {
        let fresh = unknown_of(ip, r);
        for (other, value) in self.registers.iter_mut().enumerate() {
            if matches!(value, Value::Number(n) if n.unknown == fresh && n.factor != 0) {
                *value = Value::unknown(met_at(ip, other));
            }
        }
        self.registers[r] = Value::unknown(fresh);
    }

    /// Sets all registers and slots with the same value as register `r` to `known`.
    pub(crate) fn reveal(&mut self, r: usize, known: Value) {
        let same = self.registers[r];
        let held = self.registers.iter_mut().chain(self.slots.values_mut());
        held.filter(|value| **value == same)
            .for_each(|value| *value = known);
    }

    /// Writes `width` bytes to the frame.
    pub(crate) fn put(&mut self, at: i64, width: i64, value: Option<Value>) {
        let end = at.saturating_add(width.max(1));
        let hit: Vec<i64> = self
            .slots
            .range(at.saturating_sub(7)..end)
            .map(|(&k, _)| k)
            .collect();
        for key in hit {
            self.slots.remove(&key);
        }
        if let Some(value) = value.filter(|_| width == 8) {
            self.slots.insert(at, value);
        }
    }

    /// The state that holds on both of two paths that join at `ip`.
    pub(crate) fn join(&self, other: &Self, ip: u64) -> Self {
        let mut registers = self.registers;
        for (r, value) in registers.iter_mut().enumerate() {
            *value = join(*value, other.registers[r], met_at(ip, r));
        }
        let slots = self
            .slots
            .iter()
            .filter_map(|(&at, &mine)| {
                let theirs = *other.slots.get(&at)?;
                let joined = join(mine, theirs, 0);
                (mine == theirs || joined.is_pointer()).then_some((at, joined))
            })
            .collect();
        Self { registers, slots }
    }
}

fn unknowns(ip: u64) -> [Value; 16] {
    std::array::from_fn(|r| Value::unknown(unknown_of(ip, r)))
}

/// The value that holds on both of two paths; `unknown` numbers the unknown value if they
/// differ.
pub(crate) fn join(a: Value, b: Value, unknown: u64) -> Value {
    if a == b {
        return a;
    }
    match (a, b) {
        // The same field of two elements is that field of some element.
        (Value::Inside(a), Value::Inside(b)) if a.ty == b.ty => Value::Inside(Touched {
            modulo: gcd(gcd(a.modulo, b.modulo), a.offset.abs_diff(b.offset)),
            storage: if a.storage == b.storage {
                a.storage
            } else {
                Storage::Pointer
            },
            origin: if a.origin == b.origin {
                a.origin
            } else {
                NOWHERE
            },
            call: if a.call == b.call { a.call } else { 0 },
            ..a
        }),
        (Value::Number(a), Value::Number(b)) => {
            let common = gcd(
                gcd(a.factor.unsigned_abs(), b.factor.unsigned_abs()),
                a.plus.abs_diff(b.plus),
            );
            Value::Number(Number {
                unknown,
                factor: common as i64,
                plus: a.plus,
            })
        }
        _ => Value::unknown(unknown),
    }
}

pub(crate) fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

impl Value {
    pub(crate) const fn unknown(number: u64) -> Self {
        Self::Number(Number {
            unknown: number,
            factor: 1,
            plus: 0,
        })
    }

    pub(crate) const fn constant(value: i64) -> Self {
        Self::Number(Number {
            unknown: 0,
            factor: 0,
            plus: value,
        })
    }

    /// The number of the unknown, if the value is exactly one.
    pub(crate) fn as_unknown(self) -> Option<u64> {
        match self {
            Self::Number(Number {
                unknown,
                factor: 1,
                plus: 0,
            }) => Some(unknown),
            _ => None,
        }
    }

    /// The number of the unknown, if the value is one plus a constant.
    pub(crate) fn unknown_plus(self) -> Option<u64> {
        match self {
            Self::Number(n) if n.factor == 1 => Some(n.unknown),
            _ => None,
        }
    }

    /// The same address, marked as the result of the call before `after`.
    pub(crate) fn returned_before(self, after: u64) -> Self {
        match self {
            Self::Inside(touched) => Self::Inside(Touched {
                call: after,
                ..touched
            }),
            other => other,
        }
    }

    pub(crate) fn is_pointer(self) -> bool {
        !matches!(self, Self::Number(_))
    }

    pub(crate) fn times(self, by: i64, unknown: u64) -> Self {
        match self {
            _ if by == 1 => self,
            Self::Number(n) => Self::Number(Number {
                factor: n.factor.wrapping_mul(by),
                plus: n.plus.wrapping_mul(by),
                ..n
            }),
            _ => Self::unknown(unknown),
        }
    }

    pub(crate) fn plus(self, by: i64) -> Self {
        match self {
            Self::Number(n) => Self::Number(Number {
                plus: n.plus.wrapping_add(by),
                ..n
            }),
            Self::Frame(at) => Self::Frame(at.wrapping_add(by)),
            Self::Inside(touched) => Self::Inside(Touched {
                offset: touched.offset.wrapping_add(by),
                ..touched
            }),
        }
    }

    /// The sum; `unknown` numbers it if the two have nothing in common.
    pub(crate) fn add(self, other: Self, unknown: u64) -> Self {
        match (self, other) {
            (Self::Number(a), Self::Number(b)) => {
                let plus = a.plus.wrapping_add(b.plus);
                let same = a.unknown == b.unknown || a.factor == 0 || b.factor == 0;
                let sum = if same {
                    let unknown = if a.factor == 0 { b.unknown } else { a.unknown };
                    Number {
                        unknown,
                        factor: a.factor.wrapping_add(b.factor),
                        plus,
                    }
                } else {
                    let common = gcd(a.factor.unsigned_abs(), b.factor.unsigned_abs());
                    Number {
                        unknown,
                        factor: common as i64,
                        plus,
                    }
                };
                Self::Number(sum)
            }
            (Self::Number(n), Self::Inside(p)) | (Self::Inside(p), Self::Number(n)) => {
                Self::Inside(Touched {
                    offset: p.offset.wrapping_add(n.plus),
                    modulo: gcd(p.modulo, n.factor.unsigned_abs()),
                    ..p
                })
            }
            (Self::Number(n), Self::Frame(at)) | (Self::Frame(at), Self::Number(n))
                if n.factor == 0 =>
            {
                Self::Frame(at.wrapping_add(n.plus))
            }
            _ => Self::unknown(unknown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inside(offset: i64, modulo: u64) -> Value {
        Value::Inside(Touched {
            ty: TypeId(1),
            offset,
            modulo,
            storage: Storage::Pointer,
            origin: NOWHERE,
            call: 0,
        })
    }

    #[test]
    fn an_index_built_from_shifts_and_sums_keeps_its_multiple() {
        // gcc -O0 multiplies by 24 as ((i + i) + i) << 3.
        let i = Value::unknown(7);
        let three = i.add(i, 8).add(i, 9);
        let index = three.times(8, 10);
        assert_eq!(inside(16, 0).add(index, 11), inside(16, 24));
    }

    #[test]
    fn two_unrelated_indices_have_only_their_common_divisor() {
        let sum = Value::unknown(1)
            .times(48, 0)
            .add(Value::unknown(2).times(8, 0), 3);
        assert_eq!(inside(0, 0).add(sum, 4), inside(0, 8));
    }

    #[test]
    fn a_pointer_that_a_loop_advances_settles_at_its_step() {
        let start = inside(8, 0);
        let once = join(start, start.plus(24), 1);
        assert_eq!(once, inside(8, 24));
        assert_eq!(join(once, once.plus(24), 1), once);
        assert_eq!(join(once, once.plus(16), 1), inside(8, 8));
    }

    #[test]
    fn pointers_to_different_types_meet_as_nothing() {
        let other = Value::Inside(Touched {
            ty: TypeId(2),
            offset: 0,
            modulo: 0,
            storage: Storage::Pointer,
            origin: NOWHERE,
            call: 0,
        });
        assert_eq!(join(inside(0, 0), other, 5), Value::unknown(5));
    }

    #[test]
    fn a_narrow_store_destroys_the_spilled_pointer_it_overlaps() {
        let mut state = State::at_entry(0x1000);
        state.put(-16, 8, Some(inside(0, 0)));
        state.put(-9, 1, None);
        assert!(state.slots.is_empty());
    }
}
