//! The state of an analysis, and what all its parts use: objects that a value leads to, and notes
//! on values that are results of calls.

use super::answers::Answers;
use super::function::Function;
use crate::answer::Storage;
use crate::locals::Local;
use crate::tables::Tables;
use crate::types::{Shape, TypeId};
use crate::value::{NOWHERE, Origin, Touched, Value};
use iced_x86::Register;
use std::collections::HashMap;
use sunder_x86::Manual;

pub(super) const RAX: usize = 0;
pub(super) const RCX: usize = 1;
pub(super) const RSP: usize = 4;
pub(super) const RBP: usize = 5;
pub(super) const RSI: usize = 6;
pub(super) const RDI: usize = 7;
/// Stands for no register in the name of an unknown.
pub(super) const UNNAMED: usize = 15;
/// Executables that are not position-independent are linked above this.
pub(super) const LOWEST_FIXED: i64 = 0x1_0000;

pub(super) struct Analysis<'a> {
    pub(super) function: &'a Function<'a>,
    pub(super) debug: &'a mut Tables,
    pub(super) limits: &'a mut Vec<String>,
    pub(super) manual: Manual,
    pub(super) answers: Answers,
    /// What called functions return, by their address.
    pub(super) returns: HashMap<u64, Option<Value>>,
    /// Results of calls that are still unknown: the address after the call.
    pub(super) calls: HashMap<u64, u64>,
    /// Whether the values are settled.
    pub(super) noting: bool,
}

impl Analysis<'_> {
    /// The value `new`, which describes the address `old` better, marked as the result of the
    /// same call.
    pub(super) fn tagged(&self, new: Value, old: Value) -> Value {
        let call = match old {
            Value::Inside(old) => Some(old.call),
            _ => old.as_unknown().and_then(|u| self.calls.get(&u).copied()),
        };
        new.returned_before(call.unwrap_or(0))
    }

    /// Records that `value` points to a `ty`, if it is the result of a call.
    pub(super) fn note_result(&mut self, value: Value, ty: TypeId) {
        let Some(&after) = value.as_unknown().and_then(|u| self.calls.get(&u)) else {
            return;
        };
        let known = self.answers.results.get(&after).copied();
        if known.is_none_or(|old| self.is_record(ty) && !self.is_record(old)) {
            self.answers.results.insert(after, ty);
        }
    }

    /// Whether the type of a variable is preferred to `old`. A value that was followed here is
    /// as good, unless it is less specific: the address of a plain number where the variable's
    /// type is a record.
    pub(super) fn is_better(&self, new: &Touched, old: Value) -> bool {
        match old {
            Value::Number(n) => !n.is_constant(),
            Value::Frame(_) => false,
            Value::Inside(old) if old.ty == new.ty => {
                old.origin == NOWHERE && old.modulo >= new.modulo
            }
            Value::Inside(old) => self.is_record(new.ty) && !self.is_record(old.ty),
        }
    }

    /// The address of an object of type `ty` that `name` leads to.
    pub(super) fn start_of(&mut self, ty: TypeId, name: &str, storage: Storage) -> Value {
        let origin = self.origin(name);
        Value::Inside(Touched {
            ty,
            offset: 0,
            modulo: 0,
            storage,
            origin,
            call: 0,
        })
    }

    /// The value of a register that holds the pointer `local` minus `sum`.
    pub(super) fn pointer_in(&mut self, local: &Local, sum: i64) -> Option<Value> {
        let leaf = self.debug.types.leaf(local.ty, local.piece)?;
        let target = self.debug.types.pointee(&mut self.debug.info, leaf)?;
        let start = self.start_of(target, local.telling_name(), Storage::Pointer);
        Some(start.plus(sum.wrapping_neg()))
    }

    pub(super) fn is_record(&self, ty: TypeId) -> bool {
        let types = &self.debug.types;
        matches!(
            types.get(types.plain(ty)).map(|t| &t.shape),
            Some(Shape::Record { .. })
        )
    }

    pub(super) fn origin(&mut self, name: &str) -> Origin {
        if name.is_empty() {
            return NOWHERE;
        }
        let names = &mut self.answers.names;
        let at = names.iter().position(|n| n == name).unwrap_or_else(|| {
            names.push(name.to_owned());
            names.len() - 1
        });
        Origin(at as u32)
    }
}

/// The encoding number of a general register of any width.
pub(super) fn number(register: Register) -> Option<usize> {
    register.is_gpr().then(|| register.full_register().number())
}
