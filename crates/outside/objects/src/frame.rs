//! The variable at an address of a stack. The caller provides stack frames that were live when
//! threads were created in them: variables shared through pointers lie in such frames. Called by
//! [`Names::object_at`]; each function's variables are read once. It is not known whether a frame
//! was still live at the access, so frames that contradict each other name nothing.

use crate::answer::{
    CodeFrame, Declared, ObjectContext, ObjectKind, ObjectName, StackFrame, TypeHandle,
};
use crate::fold;
use crate::globals::declared;
use crate::locals::{Local, Location};
use crate::module::Debug;
use crate::names::Names;
use crate::types::{TypeId, TypeTable};
use std::collections::HashSet;
use sunder_access::{Address, LinkAddress};

/// The encoding numbers of the registers that a [`StackFrame`] has.
const RSP: usize = 4;
const RBP: usize = 5;

/// A variable in a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct StackVariable {
    pub(crate) name: String,
    pub(crate) ty: TypeId,
    pub(crate) size: u64,
    pub(crate) start: Address,
    pub(crate) declared: Option<Declared>,
}

/// The address of a local variable in `frame`, if the whole variable is in memory that the frame's
/// registers lead to.
fn start(local: &Local, frame: &StackFrame) -> Option<Address> {
    let (base, offset) = match local.place {
        Location::Frame(offset) => (frame.cfa?, offset),
        Location::Memory(RSP, offset) => (frame.stack_pointer, offset),
        Location::Memory(RBP, offset) => (frame.frame_pointer, offset),
        _ => return None,
    };
    local
        .whole
        .then(|| Address(base.0.wrapping_add_signed(offset)))
}

/// The variable at `address`, and its start. `call` is the address of the last byte of the call in
/// which the frame waits.
fn find<'a>(
    locals: &'a [Local],
    types: &TypeTable,
    frame: &StackFrame,
    call: LinkAddress,
    address: Address,
) -> Option<(&'a Local, Address, u64)> {
    locals
        .iter()
        .filter(|l| (l.begin..l.end).contains(&call.0) && !l.name.is_empty())
        .filter_map(|local| {
            let start = start(local, frame)?;
            let size = types.size(local.ty)?;
            let holds = address.0.checked_sub(start.0).is_some_and(|o| o < size);
            (holds && frame.holds(start)).then_some((local, start, size))
        })
        // Variables that share memory are not alive at the same time. One of an outer block can
        // share with one of the current block only if it is used after that. An inlined function
        // names an argument by its parameter; the enclosing function has the variable itself.
        .max_by_key(|(local, _, size)| (!local.parameter, local.depth, *size))
}

impl Debug {
    /// The variable at `address` in `frame`.
    pub(crate) fn stack_variable(
        &mut self,
        frame: &StackFrame,
        call: LinkAddress,
        address: Address,
        limits: &mut Vec<String>,
    ) -> Option<StackVariable> {
        let (die, begin, _) = self.tables.function(call, limits)?;
        let locals = self.locals_of(die, begin);
        let (local, start, size) = find(&locals, &self.tables.types, frame, call, address)?;
        let entry = crate::dwarf::DieRef {
            unit: die.unit,
            offset: local.entry,
        };
        Some(StackVariable {
            name: local.name.to_owned(),
            ty: local.ty,
            size,
            start,
            declared: declared(&self.tables.info, entry),
        })
    }
}

impl Names {
    /// The variable at `address` in one of the context's frames. Frames of the threads that access
    /// the address come first: others may be of another time.
    pub(crate) fn stack_variable(
        &mut self,
        address: Address,
        context: &ObjectContext,
    ) -> Option<ObjectName> {
        let (near, far): (Vec<&StackFrame>, _) = context
            .frames
            .iter()
            .filter(|frame| frame.holds(address))
            .partition(|frame| context.touched_by.contains(&frame.created));
        self.agreed_variable(address, &near)
            .or_else(|| self.agreed_variable(address, &far))?
    }

    /// The variable that all of `frames` with one at `address` agree on; `Some(None)` if they
    /// disagree.
    fn agreed_variable(
        &mut self,
        address: Address,
        frames: &[&StackFrame],
    ) -> Option<Option<ObjectName>> {
        let mut asked = HashSet::new();
        let mut agreed: Option<ObjectName> = None;
        for frame in frames {
            // A loop creates many threads in the same frame.
            let same = (frame.return_address, frame.stack_pointer, frame.cfa);
            if !asked.insert((same, frame.frame_pointer)) {
                continue;
            }
            let Some(found) = self.variable_in(frame, address) else {
                continue;
            };
            if agreed.as_ref().is_some_and(|known| *known != found) {
                return Some(None);
            }
            agreed = Some(found);
        }
        agreed.map(Some)
    }

    fn variable_in(&mut self, frame: &StackFrame, address: Address) -> Option<ObjectName> {
        let ret = frame.return_address;
        let placed = self.place(Address(ret.0.wrapping_sub(1)))?;
        // The outermost of the inlined functions owns the frame. Variables of a library there are
        // not the user's data.
        let function = self.frames_of_return(ret).pop()?;
        if fold::is_library_name(&function.function) {
            return None;
        }
        let (debug, limits) = self.debug(placed.module)?;
        let found = debug.stack_variable(frame, placed.link, address, limits)?;
        let handle = TypeHandle {
            module: placed.module as u32,
            ty: found.ty.0,
        };
        Some(ObjectName {
            kind: ObjectKind::Stack,
            name: Some(found.name),
            type_name: self.type_name(handle),
            type_handle: Some(handle),
            size: Some(found.size),
            start: found.start,
            allocation: vec![CodeFrame {
                file: found.declared.as_ref().map(|d| d.file.clone()),
                line: found.declared.as_ref().and_then(|d| d.line),
                // The declaration is meant and not a call: two threads that the function creates at
                // two calls agree on the variable.
                offset: None,
                ..function.clone()
            }],
            declared: found.declared,
            thread: Some(frame.thread),
            module: function.module,
            ..ObjectName::default()
        })
    }
}
