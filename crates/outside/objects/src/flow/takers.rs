//! Finds what takes the result of a call: the variable or field in which it is stored, or the
//! object in which the called function stores it. An allocation gets its name so. Called by
//! [`super`]; results are only noted in the last pass of the analysis, when the values are
//! settled.

use super::analysis::{Analysis, RAX, RDI, RSI};
use super::answers::{Argument, Taker};
use crate::answer::Storage;
use crate::locals::Local;
use crate::path;
use crate::value::{State, Touched, Value, unknown_of};
use iced_x86::{FlowControl, Instruction};

impl Analysis<'_> {
    /// The call whose result `value` is, or into whose result it points.
    fn taken(&self, value: Value) -> Option<u64> {
        match value {
            Value::Inside(touched) => Some(touched.call).filter(|&after| after != 0),
            _ => self.calls.get(&value.unknown_plus()?).copied(),
        }
    }

    /// Notes that, by the debug information, `local` is in a register that holds `value`.
    pub(super) fn note_local(&mut self, local: &Local, value: Value, ip: u64) {
        if !self.noting {
            return;
        }
        let Some(after) = self.taken(value) else {
            return;
        };
        let rank = (local.inlined, ip, local.entry);
        let better = |old: &(u8, u64, usize)| rank < *old;
        let known = self
            .answers
            .calls
            .get(&after)
            .and_then(|c| c.taker.as_ref());
        if known.is_some_and(|old| !better(&old.rank))
            || (local.parameter && local.inlined > 0)
            || is_reserved(local.name)
            || local.librarys
        {
            return;
        }
        let inside = path::path(&self.debug.types, local.ty, local.piece, true);
        self.answers.calls.entry(after).or_default().taker = Some(Taker {
            rank,
            name: format!("{}{inside}", local.name),
            local: inside.is_empty(),
            variable: local.ty,
        });
    }

    /// Notes that `value` is stored at `address`.
    pub(super) fn note_store(&mut self, address: Value, value: Value, ip: u64, state: &State) {
        if !self.noting {
            return;
        }
        let Some(after) = self.taken(value) else {
            return;
        };
        let target = match address {
            Value::Inside(touched) => Some(touched),
            Value::Frame(at) => self.frame_variable_soon(at, ip, state),
            Value::Number(_) => None,
        };
        let Some(target) = target else { return };
        let named = |l: &&Local| self.answers.name(target.origin) == Some(l.name);
        let locals = || self.function.locals.iter().filter(named);
        // The variable belongs to an inlined function of a library.
        if target.storage == Storage::Frame && locals().count() > 0 && locals().all(|l| l.librarys)
        {
            return;
        }
        let types = &self.debug.types;
        let Some(offset) = types.known_offset(target.ty, target.offset, target.modulo) else {
            return;
        };
        let leaf = types.leaf(target.ty, offset).map(|leaf| types.plain(leaf));
        let variable = self.answers.name(target.origin).unwrap_or("");
        if !leaf.is_some_and(|leaf| types.is_pointer(leaf)) || is_reserved(variable) {
            return;
        }
        let field = path::path(types, target.ty, offset, target.modulo == 0);
        let name = self.chained(&target, &field);
        if matches!(name.as_str(), "this" | "self") {
            return;
        }
        let call = self.answers.calls.entry(after).or_default();
        // A variable of the function itself that took the result earlier is a better name; one
        // of an inlined function is not.
        let rank = (0, ip, 0);
        if call.taker.as_ref().is_none_or(|old| rank < old.rank) {
            let local = target.storage == Storage::Frame && field.is_empty();
            call.taker = Some(Taker {
                rank,
                name,
                local,
                variable: target.ty,
            });
        }
    }

    /// Notes that the function returns in this state.
    pub(super) fn note_return(&mut self, state: &State) {
        if let Some(after) = self.taken(state.registers[RAX]) {
            self.answers.calls.entry(after).or_default().returned = true;
        }
    }

    /// Notes that the block `end`, entered in this state, may leave the function.
    pub(super) fn note_way_out(&mut self, end: &[Instruction], state: &State) {
        /// An epilogue: restores registers and returns.
        const LONGEST: usize = 12;
        let returns = end
            .last()
            .is_some_and(|i| i.flow_control() == FlowControl::Return);
        if !returns || end.len() > LONGEST {
            return;
        }
        let mut state = state.clone();
        self.noting = false;
        for instruction in end {
            self.execute(instruction, &mut state);
        }
        self.noting = true;
        self.note_return(&state);
    }

    /// Notes the arguments of the call `instruction`, made in this state.
    pub(super) fn note_call(&mut self, instruction: &Instruction, state: &State) {
        if !self.noting {
            return;
        }
        let argument = self.argument(state.registers[RDI], instruction.ip(), state);
        // `owner = make()` passes a temporary by reference to move it.
        if let (Value::Frame(at), Argument::Container(_) | Argument::Own) =
            (state.registers[RSI], &argument)
        {
            let moved = Argument::Temporary(at);
            for call in self.answers.calls.values_mut() {
                if call.argument == moved {
                    call.argument = argument.clone();
                }
            }
        }
        let call = self.answers.calls.entry(instruction.next_ip()).or_default();
        call.argument = argument;
        call.pointers = [RDI, RSI].map(|r| match state.registers[r] {
            Value::Inside(touched) => Some(touched),
            _ => None,
        });
    }

    /// Whether `instruction` jumps to another function: a tail call.
    pub(super) fn is_tail_call(&self, instruction: &Instruction) -> bool {
        let end = self.function.begin + self.function.code.len() as u64;
        instruction.is_jmp_short_or_near()
            && !(self.function.begin..end).contains(&instruction.near_branch_target())
    }

    /// The local variable at `offset` from the frame address whose scope includes `ip`, or
    /// begins soon after it, when the variable has its first value.
    pub(super) fn frame_variable_soon(
        &mut self,
        offset: i64,
        ip: u64,
        state: &State,
    ) -> Option<Touched> {
        /// Bytes of code: a few instructions.
        const SOON: u64 = 32;
        if let Some(known) = self.frame_variable(offset, ip, state) {
            return Some(known);
        }
        let begins = self.function.locals.iter().map(|l| l.begin);
        let mut begins: Vec<u64> = begins
            .filter(|b| (ip + 1..=ip + SOON).contains(b))
            .collect();
        begins.sort_unstable();
        begins.dedup();
        begins
            .into_iter()
            .find_map(|begin| self.frame_variable(offset, begin, state))
    }

    fn argument(&mut self, value: Value, ip: u64, state: &State) -> Argument {
        let touched = match value {
            Value::Inside(touched) => touched,
            Value::Frame(at) => match self.frame_variable_soon(at, ip, state) {
                Some(touched) => touched,
                None => return Argument::Temporary(at),
            },
            Value::Number(_) => {
                let own = unknown_of(self.function.begin, RDI);
                return if value.as_unknown() == Some(own) {
                    Argument::Own
                } else {
                    Argument::Unknown
                };
            }
        };
        let variable = self.answers.name(touched.origin).unwrap_or("").to_owned();
        let types = &self.debug.types;
        let offset = types.known_offset(touched.ty, touched.offset, touched.modulo);
        // What lies behind the object that the type tells is a part of another one.
        let is_within = |at: &u64| types.size(touched.ty).is_none_or(|size| *at < size.max(1));
        let Some(offset) = offset.filter(|at| !is_reserved(&variable) && is_within(at)) else {
            return Argument::Unknown;
        };
        let Some((inside, container)) = path::owner(types, touched.ty, offset, touched.modulo == 0)
        else {
            return Argument::Unknown;
        };
        let name = self.chained(&touched, &inside);
        match (name.as_str(), container) {
            ("this" | "self", _) if offset == 0 => Argument::Own,
            ("this" | "self", _) => Argument::Unknown,
            ("", _) => Argument::Unknown,
            (_, true) => Argument::Container(name),
            (_, false) => Argument::Pointer(name),
        }
    }
}

/// Whether the name is reserved for implementations of the language.
fn is_reserved(name: &str) -> bool {
    name.is_empty() || name.starts_with("__") || name.starts_with("_M_")
}
