//! The transfer functions of the data-flow analysis: the effects of each instruction on the
//! values of registers and frame slots, as [`sunder_x86`] tells them. Called by [`super`]. A
//! value that is not followed here must become unknown.

use super::analysis::{Analysis, LOWEST_FIXED, RAX, RBP, RCX, RSP, UNNAMED, number};
use crate::answer::Storage;
use crate::dwarf::StaticLocation;
use crate::value::{State, Value, join, unknown_of};
use iced_x86::{Code, Instruction, Mnemonic, OpKind};
use sunder_access::LinkAddress;
use sunder_x86::register::KEPT_BY_CALLS;
use sunder_x86::{
    Access, AddressForm, Certainty, Control, Does, Part, Reach, Rule, Source, Value as New, source,
    step_of_stack, values,
};

impl Analysis<'_> {
    /// The effect of `instruction` on `state`.
    pub(super) fn execute(&mut self, instruction: &Instruction, state: &mut State) {
        let ip = instruction.ip();
        match (instruction.mnemonic(), Control::of(instruction)) {
            (Mnemonic::Push | Mnemonic::Pop | Mnemonic::Leave, _) if is_plain(instruction) => {
                return self.stack(instruction, state);
            }
            (_, Control::Call(_) | Control::CallThrough) => return self.call(instruction, state),
            (Mnemonic::Mov, _) if instruction.op_kind(0) == OpKind::Memory => {
                return self.store(instruction, state);
            }
            _ => {}
        }
        let does = self.manual.does(instruction);
        let written = values(instruction, &does).map(|value| {
            let value = value?;
            let new = self.result(instruction, &value, state)?;
            Some((usize::from(value.register), value.bits == 64, new))
        });
        self.forget(instruction, &does, state);
        for written in written.into_iter().flatten() {
            match written {
                // Half a pointer is not a pointer. Numbers are assumed not to overflow, which C
                // forbids for signed ones.
                // After `alloca` the stack pointer is not known.
                (RSP, _, Value::Inside(_)) => state.set_unknown(RSP, ip),
                (r, wide, value) if wide || !value.is_pointer() || self.function.fixed => {
                    state.registers[r] = value;
                }
                (r, ..) => state.set_unknown(r, ip),
            }
        }
    }

    /// The new value of a register; `None` if it is not followed. Truncated bits and lost signs
    /// are ignored: numbers are assumed not to overflow.
    fn result(&mut self, instruction: &Instruction, new: &New, state: &State) -> Option<Value> {
        let ip = instruction.ip();
        let r = usize::from(new.register);
        let before = state.registers[r];
        let own = Source::Register(new.register);
        let unknown = unknown_of(ip, r);
        Some(match new.rule {
            Rule::Copy(from) | Rule::Signed(from, 32) => self.value(instruction, from, state)?,
            Rule::Address { displacement, .. } => self.sum(instruction, displacement, state),
            Rule::Add(a, b) => {
                let a = self.value(instruction, a, state);
                let b = self.value(instruction, b, state);
                let or_unknown = |value: Option<Value>| value.unwrap_or(Value::unknown(unknown));
                self.total(or_unknown(a), or_unknown(b), ip, state)
            }
            Rule::Minus(a, b) if a == own => {
                let other = self
                    .value(instruction, b, state)
                    .unwrap_or(Value::unknown(unknown));
                self.total(before, other.times(-1, unknown), ip, state)
            }
            Rule::Left(a, by) if a == own => before.times(1i64.checked_shl(by)?, unknown),
            Rule::Times(a, Source::Constant(by)) => {
                let other = self
                    .value(instruction, a, state)
                    .unwrap_or(Value::unknown(unknown));
                other.times(by as i64, unknown)
            }
            Rule::Either(a, b) => join(
                self.value(instruction, a, state)?,
                self.value(instruction, b, state)?,
                unknown,
            ),
            _ => return None,
        })
    }

    /// The value of operand `i`; `None` if it is not known.
    fn source(&mut self, instruction: &Instruction, i: u32, state: &State) -> Option<Value> {
        self.value(instruction, source(instruction, i)?, state)
    }

    /// The value of a source; `None` if it is not known.
    fn value(&mut self, instruction: &Instruction, from: Source, state: &State) -> Option<Value> {
        match from {
            Source::Register(r) => Some(state.registers[usize::from(r)]),
            Source::Memory if instruction.memory_size().size() == 8 => {
                let address = self.address(instruction, state);
                self.load(address, instruction.ip(), state)
            }
            Source::Constant(value) => {
                // `mov edi, offset counters` in code at a fixed address.
                let address = self.function.fixed && value as i64 >= LOWEST_FIXED;
                let found = address
                    .then(|| self.variable(StaticLocation::Address(value), value))
                    .flatten();
                Some(found.unwrap_or(Value::constant(value as i64)))
            }
            Source::Memory | Source::Unknown => None,
        }
    }

    fn stack(&mut self, instruction: &Instruction, state: &mut State) {
        let ip = instruction.ip();
        match instruction.mnemonic() {
            Mnemonic::Push => {
                let value = self.source(instruction, 0, state);
                state.registers[RSP] = state.registers[RSP].plus(-8);
                if let Value::Frame(top) = state.registers[RSP] {
                    state.put(top, 8, value);
                }
            }
            Mnemonic::Pop => {
                let top = state.registers[RSP];
                state.registers[RSP] = top.plus(8);
                if let Some(r) = number(instruction.op0_register()) {
                    pop(state, r, top, ip);
                }
            }
            _ => {
                let frame = state.registers[RBP];
                state.registers[RSP] = frame.plus(8);
                pop(state, RBP, frame, ip);
            }
        }
    }

    fn call(&mut self, instruction: &Instruction, state: &mut State) {
        self.note_call(instruction, state);
        for r in (0..16).filter(|r| KEPT_BY_CALLS >> r & 1 == 0) {
            state.set_unknown(r, instruction.ip());
        }
        if let Some(target) = self.call_target(instruction) {
            let known = self.returns.get(&target).copied();
            let value = known.unwrap_or_else(|| self.returned(target));
            self.returns.insert(target, value);
            if let Some(value) = value {
                state.registers[RAX] = value.returned_before(instruction.next_ip());
                if let Value::Inside(result) = value {
                    self.answers
                        .results
                        .insert(instruction.next_ip(), result.ty);
                }
            }
        }
        if let Some(unknown) = state.registers[RAX].as_unknown() {
            self.calls.insert(unknown, instruction.next_ip());
        }
    }

    /// The value that the function at `target` returns, if it is a pointer.
    fn returned(&mut self, target: u64) -> Option<Value> {
        let (die, begin, _) = self.debug.function(LinkAddress(target), self.limits)?;
        if begin != target {
            return None;
        }
        let (typed, value) = self.debug.info.inherited(die, gimli::DW_AT_type)?;
        let ty = self.debug.info.resolve(typed.unit, &value)?;
        let ty = self.debug.types.load(&mut self.debug.info, ty, 0)?;
        // A class that contains one pointer may be returned in rax or through a hidden
        // argument, so only plain pointers are followed.
        let target = self.debug.types.pointee(&mut self.debug.info, ty)?;
        let name = self.debug.info.inherited(die, gimli::DW_AT_name);
        let name = name.and_then(|(at, value)| self.debug.info.unit(at.unit)?.text(value));
        let shown = name.map(|name| format!("{name}()")).unwrap_or_default();
        Some(self.start_of(target, &shown, Storage::Pointer))
    }

    fn store(&mut self, instruction: &Instruction, state: &mut State) {
        let address = self.address(instruction, state);
        let target = match address {
            Value::Inside(touched) => Some(touched),
            Value::Frame(at) => self.frame_variable(at, instruction.ip(), state),
            Value::Number(_) => None,
        };
        // Unoptimised code first stores each argument to its variable; from then on the
        // register and all copies are known to be that variable. The type of a variable that
        // takes the result of a call is the type of the result.
        if instruction.op1_kind() == OpKind::Register
            && instruction.op1_register().is_gpr64()
            && let Some(r) = number(instruction.op1_register())
        {
            let old = state.registers[r];
            self.note_store(address, old, instruction.ip(), state);
            if let Some(target) = target
                && let Some(Value::Inside(new)) = self.follow(&target)
                && self.is_better(&new, old)
            {
                self.note_result(old, new.ty);
                state.reveal(r, self.tagged(Value::Inside(new), old));
            }
        }
        if let Value::Frame(at) = address {
            let value = self.source(instruction, 1, state);
            state.put(at, instruction.memory_size().size() as i64, value);
        }
    }

    /// Makes the values unknown that `instruction` overwrites.
    fn forget(&mut self, instruction: &Instruction, does: &Does, state: &mut State) {
        let ip = instruction.ip();
        for access in does.accesses().filter(|access| access.action.writes()) {
            if let Value::Frame(at) = address(&access.place, ip, state) {
                state.put(at, width(access, state), None);
            }
        }
        for r in (0..16).filter(|r| does.registers.written >> r & 1 != 0) {
            state.set_unknown(r, ip);
        }
    }
}

/// The address of an access, as far as it is in the frame.
fn address(place: &AddressForm, ip: u64, state: &State) -> Value {
    let unknown = unknown_of(ip, UNNAMED);
    if place.segment.is_some() || place.reach != Reach::There {
        return Value::unknown(unknown);
    }
    let part = |part: Part| state.registers[usize::from(part.register)];
    let base = place.base.map_or(Value::constant(0), part);
    let index = place.index.map_or(Value::constant(0), |index| {
        part(index.part).times(index.scale.into(), unknown)
    });
    base.plus(place.displacement as i64).add(index, unknown)
}

/// The number of bytes that a store may change. For a repeated store it depends on the count;
/// without a known count it is everything after its address.
fn width(access: &Access, state: &State) -> i64 {
    let one = i64::from(access.width);
    match (access.certainty, state.registers[RCX]) {
        (Certainty::Counted, Value::Number(n)) if n.is_constant() => one.saturating_mul(n.plus),
        (Certainty::Counted, _) => i64::MAX,
        _ => one,
    }
}

/// Whether it is a push or pop of 8 bytes, or `leave`.
fn is_plain(instruction: &Instruction) -> bool {
    match instruction.mnemonic() {
        Mnemonic::Push => step_of_stack(instruction) == Some(-8),
        Mnemonic::Pop => instruction.op0_register().is_gpr64(),
        _ => instruction.code() == Code::Leaveq,
    }
}

fn pop(state: &mut State, r: usize, top: Value, ip: u64) {
    let saved = match top {
        Value::Frame(at) => state.slots.get(&at).copied(),
        _ => None,
    };
    match saved {
        Some(value) => state.registers[r] = value,
        None => state.set_unknown(r, ip),
    }
}
