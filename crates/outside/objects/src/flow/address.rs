//! Addresses: the typed object that an operand accesses, and the values of memory.

use super::analysis::{Analysis, LOWEST_FIXED, UNNAMED, number};
use crate::answer::Storage;
use crate::dwarf::StaticLocation;
use crate::locals::Location;
use crate::value::{State, Touched, Value, gcd, unknown_of};
use iced_x86::{Instruction, Mnemonic, Register};
use sunder_x86::{Action, Role};

/// Names of chained pointers (`a->b->c`) are cut at this many bytes.
const MAX_NAME: usize = 60;

impl Analysis<'_> {
    /// The typed object that the explicit memory operand of `instruction` accesses.
    pub(super) fn touched(&mut self, instruction: &Instruction, state: &State) -> Option<Touched> {
        let does = self.manual.does(instruction);
        let mut accesses = does.accesses().filter(|a| a.action != Action::Flush);
        let address = accesses.find_map(|access| match (access.role, access.place.base) {
            (Role::Operand, _) => {
                let sum = self.sum(instruction, access.place.displacement, state);
                Some(self.in_segment(instruction, sum))
            }
            (Role::String, Some(base)) => Some(state.registers[usize::from(base.register)]),
            _ => None,
        })?;
        match address {
            // An access of more than a byte through a pointer to bytes is to raw memory of another
            // type.
            Value::Inside(touched)
                if instruction.memory_size().size() > 1
                    && self.debug.types.size(touched.ty) == Some(1) =>
            {
                None
            }
            Value::Inside(touched) => Some(touched),
            Value::Frame(offset) => self.frame_variable(offset, instruction.ip(), state),
            Value::Number(_) => None,
        }
    }

    /// The local variable at `offset` from the frame address.
    pub(super) fn frame_variable(
        &mut self,
        offset: i64,
        ip: u64,
        state: &State,
    ) -> Option<Touched> {
        let function = self.function;
        let types = &self.debug.types;
        let (local, at) = function.locals_at(ip).find_map(|l| {
            let start = match l.place {
                Location::Frame(start) => start,
                Location::Memory(r, more) => match state.registers[r] {
                    Value::Frame(base) => base.wrapping_add(more),
                    _ => return None,
                },
                _ => return None,
            };
            let at = offset.checked_sub(start)?.checked_add(l.piece as i64)?;
            let size = i64::try_from(types.size(l.ty)?).ok()?;
            (at >= l.piece as i64 && at < size).then_some((l, at))
        })?;
        match self.start_of(local.ty, local.name, Storage::Frame).plus(at) {
            Value::Inside(touched) => Some(touched),
            _ => None,
        }
    }

    /// The address of the memory operand.
    pub(super) fn address(&mut self, instruction: &Instruction, state: &State) -> Value {
        let sum = self.sum(instruction, instruction.memory_displacement64(), state);
        self.in_segment(instruction, sum)
    }

    /// The address for a sum of registers and displacement, in the operand's segment.
    pub(super) fn in_segment(&mut self, instruction: &Instruction, sum: Value) -> Value {
        match instruction.memory_segment() {
            _ if instruction.is_ip_rel_memory_operand() => sum,
            Register::FS => self.thread_local(sum),
            Register::GS => Value::unknown(unknown_of(instruction.ip(), UNNAMED)),
            _ => sum,
        }
    }

    /// The sum of the memory operand's registers and the displacement. `lea` computes the same,
    /// as it ignores segments.
    pub(super) fn sum(
        &mut self,
        instruction: &Instruction,
        displacement: u64,
        state: &State,
    ) -> Value {
        let ip = instruction.ip();
        if instruction.is_ip_rel_memory_operand() {
            let address = instruction.ip_rel_memory_address();
            let found = self.variable(StaticLocation::Address(address), address);
            return found.unwrap_or(Value::constant(address as i64));
        }
        let unknown = unknown_of(ip, UNNAMED);
        let part = |register: Register| match number(register) {
            // `xlatb` adds the lowest byte.
            Some(_) if register.is_gpr8() => Value::unknown(unknown),
            Some(r) => state.registers[r],
            None => Value::constant(0),
        };
        let scale = i64::from(instruction.memory_index_scale());
        let index = part(instruction.memory_index()).times(scale, unknown);
        let base = part(instruction.memory_base()).plus(displacement as i64);
        match instruction.memory_segment() {
            Register::FS if instruction.mnemonic() != Mnemonic::Lea => base.add(index, unknown),
            _ => self.total(base, index, ip, state),
        }
    }

    /// The sum of two values, and the variable that it lies in if it is a fixed
    /// address or a place in an array of the frame.
    pub(super) fn total(&mut self, a: Value, b: Value, ip: u64, state: &State) -> Value {
        let unknown = unknown_of(ip, UNNAMED);
        if let (Value::Frame(at), Value::Number(n)) | (Value::Number(n), Value::Frame(at)) = (a, b)
            && n.factor != 0
        {
            return match self.frame_variable(at.wrapping_add(n.plus), ip, state) {
                Some(touched) => Value::Inside(Touched {
                    modulo: gcd(touched.modulo, n.factor.unsigned_abs()),
                    ..touched
                }),
                None => Value::unknown(unknown),
            };
        }
        let sum = a.add(b, unknown);
        match sum {
            Value::Number(n) if self.function.fixed && n.plus >= LOWEST_FIXED => {
                let found = self.variable(StaticLocation::Address(n.plus as u64), n.plus as u64);
                match found {
                    Some(Value::Inside(t)) => Value::Inside(Touched {
                        modulo: n.factor.unsigned_abs(),
                        ..t
                    }),
                    _ => sum,
                }
            }
            _ => sum,
        }
    }

    /// The variable of the executable at a distance from the thread pointer.
    pub(super) fn thread_local(&mut self, distance: Value) -> Value {
        let (Value::Number(n), Some(size)) = (distance, self.function.tls_size) else {
            return distance;
        };
        let offset = size.wrapping_add_signed(n.plus);
        match self.variable(StaticLocation::Tls(offset), offset) {
            Some(Value::Inside(t)) => Value::Inside(Touched {
                modulo: n.factor.unsigned_abs(),
                ..t
            }),
            _ => distance,
        }
    }

    pub(super) fn variable(&mut self, place: StaticLocation, at: u64) -> Option<Value> {
        let variable = self.debug.variable(place, self.limits)?;
        let start = self.start_of(variable.ty, &variable.name, Storage::Global);
        if let (Value::Inside(touched), StaticLocation::Address(_)) = (start, place) {
            let known = self.answers.statics.entry(touched.origin.0);
            let known = known.or_insert(Some(variable.start));
            *known = known.filter(|&start| start == variable.start);
        }
        Some(start.plus((at - variable.start) as i64))
    }

    /// The 8 bytes at `address`, if they are a pointer.
    pub(super) fn load(&mut self, address: Value, ip: u64, state: &State) -> Option<Value> {
        match address {
            Value::Inside(touched) => self.follow(&touched),
            Value::Frame(offset) => {
                if let Some(indirect) = self.indirect(offset, ip) {
                    return Some(indirect);
                }
                let typed = self
                    .frame_variable(offset, ip, state)
                    .and_then(|t| self.follow(&t));
                match (typed, state.slots.get(&offset).copied()) {
                    (Some(typed), Some(held)) => Some(self.tagged(typed, held)),
                    (typed, held) => typed.or(held),
                }
            }
            Value::Number(_) => None,
        }
    }

    /// The address of a variable passed by reference, which a frame slot holds.
    pub(super) fn indirect(&mut self, offset: i64, ip: u64) -> Option<Value> {
        let function = self.function;
        let local = function
            .locals_at(ip)
            .find(|l| l.place == Location::FrameIndirect(offset))?;
        Some(self.start_of(local.ty, local.telling_name(), Storage::Pointer))
    }

    /// The target of the pointer at `touched`.
    pub(super) fn follow(&mut self, touched: &Touched) -> Option<Value> {
        let types = &self.debug.types;
        let offset = types.known_offset(touched.ty, touched.offset, touched.modulo)?;
        let leaf = types.leaf(touched.ty, offset)?;
        let target = self.debug.types.pointee(&mut self.debug.info, leaf)?;
        let field = crate::path::path(&self.debug.types, touched.ty, offset, touched.modulo == 0);
        let name = self.chained(touched, &field);
        Some(self.start_of(target, &name, Storage::Pointer))
    }

    /// The name of a chain of pointers: `n` and `.next` give `n->next` through a pointer, else
    /// `n.next`.
    pub(super) fn chained(&self, touched: &Touched, field: &str) -> String {
        let variable = self.answers.name(touched.origin).unwrap_or("");
        let name = match (touched.storage, field.strip_prefix('.')) {
            (_, Some(field)) if variable.is_empty() => field.to_owned(),
            (Storage::Pointer, Some(field)) => format!("{variable}->{field}"),
            _ => format!("{variable}{field}"),
        };
        // The name of a list that is walked by its links would grow without bound.
        if name.len() > MAX_NAME {
            field.trim_start_matches('.').to_owned()
        } else {
            name
        }
    }
}
