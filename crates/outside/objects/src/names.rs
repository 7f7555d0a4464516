//! The entry point: queries of a process image by runtime address. Finds the module of an address,
//! loads what the query needs, and keeps it. Called by the pipeline; reads only files, never the
//! process.

mod ahead;
mod allocation;
mod frames;
mod lock_call;
mod lock_calls;
mod loops;
mod placed;
mod placing;
mod process;
mod recalled;
mod thread_blocks;
mod thread_local;
mod typed;
mod variables;

pub use allocation::Holder;
pub use lock_call::LockCall;
pub use placed::{file_name_of, is_c_library};
pub use process::Names;

use placed::Placed;

use crate::answer::{CodeFrame, HeapBlock, ObjectContext, ObjectKind, ObjectName, TypeHandle};
use crate::dwarf::StaticLocation;
use crate::fold;
use crate::globals::Variable;
use crate::limits::is_system_library;
use crate::module::Module;
use crate::packages;
use crate::remembered::Place;
use crate::types::TypeId;
use sunder_access::{Address, CodeAddress};

impl Names {
    /// Adds to the limits how to get the debug information of system files without it, for those
    /// among `files`, the files of the target with findings.
    pub fn add_remedies(&mut self, files: &[String]) {
        let mut without = Vec::new();
        for file in files {
            let Some(number) = self.modules.iter().position(|m| m.path == *file) else {
                continue;
            };
            if !self.has_debug(number) && !without.contains(&number) {
                without.push(number);
            }
        }
        if without.is_empty() {
            return;
        }
        let paths: Vec<String> = without
            .iter()
            .map(|&n| self.modules[n].path.clone())
            .collect();
        let packages = packages::packages_of(&paths, &self.options);
        for number in without {
            let Module { path, image, .. } = &self.modules[number];
            let package = packages.get(path);
            // No server has debug information of files that the user compiled.
            let known = package.is_some() || is_system_library(path);
            let id = image.build_id.as_deref().filter(|_| known);
            if let Some(sentence) = packages::remedy(path, package, id) {
                self.limits.add_for_file(path, sentence);
            }
        }
    }

    /// The object at `address`.
    pub fn object_at(&mut self, address: Address, context: &ObjectContext) -> ObjectName {
        let heap = context.heap.as_ref().filter(|b| b.span.contains(address));
        let block = match heap {
            Some(block) if !self.is_of_loader(block) => return self.heap_block(block),
            other => other,
        };
        let inside = |found: &ObjectName| block.is_none_or(|b| b.span.contains(found.start));
        if let Some(found) = self.thread_local(address, context).filter(inside) {
            return found;
        }
        if let Some(block) = block {
            return self.heap_block(block);
        }
        if let Some(placed) = self.place(address) {
            let place = StaticLocation::Address(placed.link.0);
            if let Some((variable, handle)) = self.variable(placed.module, place) {
                let start = Address(variable.start.wrapping_add(placed.bias));
                return self.variable_name(ObjectKind::Global, variable, handle, start);
            }
            if let Some(found) = self.global_symbol(placed) {
                return found;
            }
        }
        if let Some(found) = self.stack_variable(address, context) {
            return found;
        }
        let stack = context.stacks.iter().find(|s| s.span.contains(address));
        if let Some(stack) = stack.filter(|_| !self.keeps_stacks_elsewhere(address)) {
            return ObjectName {
                kind: ObjectKind::Stack,
                name: Some(format!("stack of thread {}", stack.thread)),
                size: Some(stack.span.len),
                start: stack.span.start,
                thread: Some(stack.thread),
                ..ObjectName::default()
            };
        }
        let module = self.place(address).map(|placed| placed.module);
        self.mapping_name(address, module)
    }

    fn heap_block(&mut self, block: &HeapBlock) -> ObjectName {
        let own = self.own_depth(&block.allocation);
        let stack = &block.allocation[..own];
        let mut allocation = Vec::new();
        for &ret in stack {
            let mut frames = self.frames_of_return(ret);
            self.mark_wrappers(ret, &mut frames);
            allocation.extend(frames);
        }
        leave_start_out(&mut allocation);
        let ty = self.allocated_type(stack, block.span.len);
        let holder = self.holder(stack);
        ObjectName {
            kind: ObjectKind::Heap,
            name_is_local: holder.as_ref().is_some_and(|h| h.is_local),
            name: holder.map(|h| h.name),
            type_name: ty.and_then(|ty| self.type_name(ty)),
            type_handle: ty,
            size: Some(block.span.len),
            element_size: ty.and_then(|ty| self.type_size(ty)),
            start: block.span.start,
            allocation,
            thread: block.thread,
            freed: block.freed,
            ..ObjectName::default()
        }
    }

    /// How many of these return addresses, innermost first, there are up to the outermost that is the
    /// program's. [`leave_start_out`] leaves out the C library's start of a program or thread as well, but
    /// only after its debug information was read: a fifth of a second where that is installed.
    fn own_depth(&mut self, stack: &[CodeAddress]) -> usize {
        let is_own = |ret: &CodeAddress| {
            let Some(placed) = self.place(Address(ret.0.wrapping_sub(1))) else {
                return true;
            };
            let module = &self.modules[placed.module];
            let symbol = module.image.symbols.function(placed.link);
            let is_start = symbol.is_some_and(|s| &*s.name == "_start");
            !is_start && !is_c_library(&module.path)
        };
        let last = stack.iter().rposition(is_own);
        last.map_or(stack.len(), |last| last + 1)
    }

    fn variable(&mut self, module: usize, place: StaticLocation) -> Option<(Variable, TypeHandle)> {
        let question = || match place {
            StaticLocation::Address(address) => format!("variable {address:x}"),
            StaticLocation::Tls(offset) => format!("thread-local {offset:x}"),
        };
        let (variable, place) = self.recalled(module, question, |names| {
            let (debug, limits) = names.debug(module)?;
            let variable = debug.tables.variable(place, limits)?;
            let place = names.place_of(module, variable.ty)?;
            Some((variable, place))
        })?;
        let handle = self.handle(module, variable.ty, place)?;
        Some((variable, handle))
    }

    /// The handle of a type: that of its entry if answers are remembered, else that of the loaded type.
    fn handle(&mut self, module: usize, ty: TypeId, place: Place) -> Option<TypeHandle> {
        if self.options.memory.is_some() {
            return self.handle_at(module, place);
        }
        Some(TypeHandle {
            module: u32::try_from(module).ok()?,
            ty: ty.0,
        })
    }

    fn variable_name(
        &mut self,
        kind: ObjectKind,
        variable: Variable,
        handle: TypeHandle,
        start: Address,
    ) -> ObjectName {
        ObjectName {
            kind,
            type_name: self.type_name(handle),
            type_handle: Some(handle),
            name: Some(variable.name),
            size: Some(variable.size),
            element_size: self.element_size(handle),
            start,
            declared: variable.declared,
            module: self
                .modules
                .get(handle.module as usize)
                .map(|m| m.path.clone()),
            ..ObjectName::default()
        }
    }

    fn global_symbol(&mut self, placed: Placed) -> Option<ObjectName> {
        let module = &self.modules[placed.module];
        let symbol = module.image.symbols.variable(placed.link)?;
        Some(ObjectName {
            kind: ObjectKind::Global,
            name: Some(fold::variable(&symbol.name)),
            size: Some(symbol.size),
            start: Address(symbol.address.wrapping_add(placed.bias)),
            module: Some(module.path.clone()),
            ..ObjectName::default()
        })
    }

    /// The name for an address without a better one: its mapping. `module` is the file whose
    /// variables lie there, in a mapping of the file or in the zeroed memory after it.
    fn mapping_name(&self, address: Address, module: Option<usize>) -> ObjectName {
        let Some(mapping) = self.mappings.at(address) else {
            return ObjectName {
                start: address,
                ..ObjectName::default()
            };
        };
        if let Some(module) = module.and_then(|m| self.modules.get(m)) {
            let file = module.path.rsplit('/').next().unwrap_or(&module.path);
            return ObjectName {
                kind: ObjectKind::Mapping,
                name: Some(format!("static data of {file}")),
                size: Some(mapping.span.len),
                start: mapping.span.start,
                module: Some(module.path.clone()),
                ..ObjectName::default()
            };
        }
        let (kind, name) = match mapping.path.as_str() {
            "" => (ObjectKind::Mapping, "anonymous memory"),
            // How the kernel calls what `mmap` shares without a file.
            "/dev/zero (deleted)" => (ObjectKind::Mapping, "shared anonymous memory"),
            "[heap]" => (ObjectKind::Heap, "[heap]"),
            path if path.starts_with("[stack") => (ObjectKind::Stack, path),
            // A name that the program gave it.
            path if path.starts_with("[anon:") => (
                ObjectKind::Mapping,
                path.trim_start_matches("[anon:")
                    .trim_end_matches(']')
                    .trim_start(),
            ),
            path => (ObjectKind::Mapping, path),
        };
        ObjectName {
            kind,
            name: Some(name.to_owned()),
            size: Some(mapping.span.len),
            start: mapping.span.start,
            ..ObjectName::default()
        }
    }
}

/// Removes the outermost frames of the C library: they start the program or a thread, in every call
/// stack alike.
fn leave_start_out(stack: &mut Vec<CodeFrame>) {
    let own = |frame: &CodeFrame| !frame.module.as_deref().is_some_and(is_c_library);
    if let Some(last) = stack.iter().rposition(own) {
        // A call stack that was cut may end anywhere; `_start` belongs to the program.
        let last = if stack[last].function.starts_with("_start") {
            stack[..last].iter().rposition(own).unwrap_or(last)
        } else {
            last
        };
        stack.truncate(last + 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stack(frames: &[(&str, &str)]) -> Vec<CodeFrame> {
        let frame = |&(function, module): &(&str, &str)| CodeFrame {
            function: function.to_owned(),
            module: Some(module.to_owned()),
            ..CodeFrame::default()
        };
        frames.iter().map(frame).collect()
    }

    #[test]
    fn a_stack_ends_with_the_program() {
        let (app, libc) = ("/usr/bin/app", "/lib/x86_64-linux-gnu/libc.so.6");
        let mut whole = stack(&[
            ("make", app),
            ("qsort", libc),
            ("main", app),
            ("__libc_start_call_main", libc),
            ("__libc_start_main", libc),
            ("_start+0x21", app),
        ]);
        leave_start_out(&mut whole);
        let left: Vec<_> = whole.iter().map(|f| f.function.as_str()).collect();
        assert_eq!(left, ["make", "qsort", "main"]);
        let mut library = stack(&[("getdelim", libc), ("start_thread", libc)]);
        leave_start_out(&mut library);
        assert_eq!(library.len(), 2);
    }
}
