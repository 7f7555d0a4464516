//! What each instruction does to the values of registers and frame slots: the
//! transfer functions of the data-flow analysis. Whatever is not followed here
//! becomes unknown.

use super::{Analysis, LOWEST_FIXED, PRESERVED, RAX, RBP, RSP, number};
use crate::answer::Storage;
use crate::die::StaticLocation;
use crate::value::{State, Value, join, unknown_of};
use iced_x86::{ConditionCode, Instruction, Mnemonic, OpAccess, OpKind};
use sunder_access::LinkAddress;

impl Analysis<'_> {
    /// The effect of `instruction` on `state`.
    pub(super) fn execute(&mut self, instruction: &Instruction, state: &mut State) {
        let ip = instruction.ip();
        match instruction.mnemonic() {
            Mnemonic::Push | Mnemonic::Pop | Mnemonic::Leave => {
                return self.stack(instruction, state);
            }
            Mnemonic::Call => return self.call(instruction, state),
            // Sign extension in place.
            Mnemonic::Cdqe => return,
            Mnemonic::Mov if instruction.op_kind(0) == OpKind::Memory => {
                return self.store(instruction, state);
            }
            _ => {}
        }
        let destination = match instruction.op_kind(0) {
            OpKind::Register if instruction.op_count() > 0 => Some(instruction.op0_register()),
            _ => None,
        };
        let written = destination
            .filter(|d| d.is_gpr64() || d.is_gpr32())
            .and_then(|d| Some((number(d)?, d.is_gpr64())))
            .and_then(|(r, wide)| Some((r, wide, self.result(instruction, r, state)?)));
        self.forget(instruction, state);
        match written {
            // Half a pointer is no pointer; numbers are taken not to overflow,
            // which C forbids for signed ones.
            // Where `alloca` leaves the stack pointer is not known.
            Some((RSP, _, Value::Inside(_))) => state.set_unknown(RSP, ip),
            Some((r, wide, value)) if wide || !value.is_pointer() || self.function.fixed => {
                state.registers[r] = value;
            }
            Some((r, ..)) => state.set_unknown(r, ip),
            None => {}
        }
    }

    /// What `instruction` writes to its first operand, register `r`; `None` if
    /// that is not followed.
    fn result(&mut self, instruction: &Instruction, r: usize, state: &State) -> Option<Value> {
        let ip = instruction.ip();
        let before = state.registers[r];
        let unknown = unknown_of(ip, r);
        Some(match instruction.mnemonic() {
            Mnemonic::Mov | Mnemonic::Movsxd => self.source(instruction, 1, state)?,
            Mnemonic::Lea => self.address(instruction, state),
            Mnemonic::Add => {
                let other = self
                    .source(instruction, 1, state)
                    .unwrap_or(Value::unknown(unknown));
                self.total(before, other, ip, state)
            }
            Mnemonic::Sub => {
                let other = self
                    .source(instruction, 1, state)
                    .unwrap_or(Value::unknown(unknown));
                self.total(before, other.times(-1, unknown), ip, state)
            }
            Mnemonic::Inc => before.plus(1),
            Mnemonic::Dec => before.plus(-1),
            Mnemonic::Shl if is_immediate(instruction.op_kind(1)) => before.times(
                1i64.checked_shl(instruction.immediate(1) as u32 & 63)?,
                unknown,
            ),
            Mnemonic::Imul if instruction.op_count() == 3 => {
                let by = instruction.immediate(2) as i64;
                let other = self
                    .source(instruction, 1, state)
                    .unwrap_or(Value::unknown(unknown));
                other.times(by, unknown)
            }
            Mnemonic::Xor
                if instruction.op1_kind() == OpKind::Register
                    && instruction.op0_register() == instruction.op1_register() =>
            {
                Value::constant(0)
            }
            // Of the conditional instructions only `cmov` writes 32 or 64 bits.
            _ if instruction.condition_code() != ConditionCode::None => {
                join(before, self.source(instruction, 1, state)?, unknown)
            }
            _ => return None,
        })
    }

    /// The value of operand `i`; `None` if nothing is known of it.
    fn source(&mut self, instruction: &Instruction, i: u32, state: &State) -> Option<Value> {
        let kind = instruction.op_kind(i);
        match kind {
            OpKind::Register => {
                let register = instruction.op_register(i);
                let wide = register.is_gpr64() || register.is_gpr32();
                number(register)
                    .filter(|_| wide)
                    .map(|r| state.registers[r])
            }
            OpKind::Memory if instruction.memory_size().size() == 8 => {
                let address = self.address(instruction, state);
                self.load(address, instruction.ip(), state)
            }
            _ if is_immediate(kind) => {
                let value = instruction.immediate(i);
                // `mov edi, offset counters` in code at a fixed address.
                let address = self.function.fixed && value as i64 >= LOWEST_FIXED;
                let found = address
                    .then(|| self.variable(StaticLocation::Address(value), value))
                    .flatten();
                Some(found.unwrap_or(Value::constant(value as i64)))
            }
            _ => None,
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
        for r in (0..16).filter(|r| !PRESERVED.contains(r)) {
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

    /// What the function at `target` returns, if that is a pointer.
    fn returned(&mut self, target: u64) -> Option<Value> {
        let (die, begin, _) = self.debug.function(LinkAddress(target), self.limits)?;
        if begin != target {
            return None;
        }
        let (typed, value) = self.debug.info.inherited(die, gimli::DW_AT_type)?;
        let ty = self.debug.info.resolve(typed.unit, &value)?;
        let ty = self.debug.types.load(&mut self.debug.info, ty, 0)?;
        // A class with one pointer in it may come back in rax or through a
        // hidden argument; only plain pointers are sure.
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
        // Unoptimised code stores each argument to its variable first: from
        // then on its register and all copies are known to be that variable.
        // What takes the result of a call tells what the call returned.
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

    /// What `instruction` writes is no longer known.
    fn forget(&mut self, instruction: &Instruction, state: &mut State) {
        let info = self.factory.info(instruction);
        let written: Vec<usize> = info
            .used_registers()
            .iter()
            .filter(|r| writes(r.access()))
            .filter_map(|r| number(r.register()))
            .collect();
        let stores = info.used_memory().iter().any(|m| writes(m.access()));
        let explicit =
            (0..instruction.op_count()).any(|i| instruction.op_kind(i) == OpKind::Memory);
        if stores
            && explicit
            && let Value::Frame(at) = self.address(instruction, state)
        {
            state.put(at, instruction.memory_size().size() as i64, None);
        }
        for r in written {
            state.set_unknown(r, instruction.ip());
        }
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

fn writes(access: OpAccess) -> bool {
    matches!(
        access,
        OpAccess::Write | OpAccess::CondWrite | OpAccess::ReadWrite | OpAccess::ReadCondWrite
    )
}

fn is_immediate(kind: OpKind) -> bool {
    matches!(
        kind,
        OpKind::Immediate8
            | OpKind::Immediate8to32
            | OpKind::Immediate8to64
            | OpKind::Immediate32
            | OpKind::Immediate32to64
            | OpKind::Immediate64
    )
}
