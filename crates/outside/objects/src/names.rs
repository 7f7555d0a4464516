//! The entry point: queries of a process image by runtime address. Finds the module of an address,
//! loads what the query needs, and keeps it. Called by the pipeline; reads only files, never the
//! process.

mod allocation;
mod copies;
mod lock_call;
mod lock_calls;
mod loops;
mod placed;
mod placing;
mod process;
mod recalled;
mod thread_blocks;
mod thread_local;
mod variables;

pub use allocation::Holder;
pub use lock_call::LockCall;
pub use placed::{file_name_of, is_c_library};
pub use process::Names;

use placed::Placed;

use crate::answer::{
    CodeFrame, HeapBlock, ObjectContext, ObjectKind, ObjectName, TypeHandle, TypedAccess,
};
use crate::dwarf::{Language, RawFrame, StaticLocation};
use crate::fold;
use crate::globals::Variable;
use crate::limits::is_system_library;
use crate::module::{Debug, Module};
use crate::packages;
use crate::path;
use crate::remembered::Place;
use crate::tables::Tables;
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

    /// The functions at the instruction `code`, innermost first, inlined ones included. Never
    /// empty.
    pub fn frames(&mut self, code: CodeAddress) -> Vec<CodeFrame> {
        let code = self.original(code);
        self.frames_at(code, code)
    }

    /// The functions at the call that returns to `ret`. For the frames of a call stack: a return
    /// address may already belong to the next line, or even to the next function.
    pub fn frames_of_return(&mut self, ret: CodeAddress) -> Vec<CodeFrame> {
        self.frames_at(ret.offset(-1), ret)
    }

    fn frames_at(&mut self, code: CodeAddress, shown: CodeAddress) -> Vec<CodeFrame> {
        let Some(placed) = self.place(Address(code.0)) else {
            return vec![self.unplaced_frame(code, shown)];
        };
        let file = self.modules[placed.module].path.clone();
        let link = placed.link;
        let raw: Vec<RawFrame> = self.recalled(
            placed.module,
            || format!("frames {:x}", link.0),
            |names| match names.debug_for_frames(placed.module) {
                Some((debug, limits)) => debug.tables.info.frames(link, limits),
                None => Vec::new(),
            },
        );
        let image = &self.modules[placed.module].image;
        let symbol = image
            .is_code(placed.link)
            .then(|| image.symbols.function(placed.link))
            .flatten();
        let by_symbol = || match symbol {
            Some(s) => {
                let from = shown.0.wrapping_sub(placed.bias).wrapping_sub(s.address);
                format!("{}+{from:#x}", fold::function(&s.name))
            }
            None => {
                let name = file.rsplit('/').next().unwrap_or(&file);
                format!("{name}+{:#x}", shown.0.wrapping_sub(placed.bias))
            }
        };
        let offset = Some(shown.0.wrapping_sub(placed.bias));
        let count = raw.len();
        let mut frames: Vec<CodeFrame> = raw
            .into_iter()
            .enumerate()
            .map(|(i, frame)| CodeFrame {
                function: match (frame.function, symbol) {
                    (Some(name), _) => fold::function(&name),
                    (None, Some(symbol)) if i + 1 == count => fold::function(&symbol.name),
                    (None, _) => by_symbol(),
                },
                file: frame.file,
                line: frame.line,
                inlined: i + 1 < count,
                module: Some(file.clone()),
                offset,
                wrapper: false,
            })
            .collect();
        if frames.is_empty() {
            frames.push(CodeFrame {
                function: by_symbol(),
                module: Some(file.clone()),
                offset,
                ..CodeFrame::default()
            });
        }
        frames
    }

    /// The debug information for names of code. Every call stack begins in the C library, whose
    /// symbols suffice for a reader. Its debug information takes a tenth of a second to read, so it
    /// is not read for frames alone.
    fn debug_for_frames(&mut self, module: usize) -> Option<(&mut Debug, &mut Vec<String>)> {
        let known = self.modules.get(module)?;
        if known.debug.is_none() && is_c_library(&known.path) {
            return None;
        }
        self.debug(module)
    }

    fn unplaced_frame(&self, code: CodeAddress, shown: CodeAddress) -> CodeFrame {
        if let Some(name) = self.generated.at(code) {
            return CodeFrame {
                function: name.to_owned(),
                ..CodeFrame::default()
            };
        }
        let mapping = self
            .mappings
            .at(Address(code.0))
            .filter(|m| !m.path.is_empty());
        let function = match mapping {
            Some(m) => {
                let name = m.path.rsplit('/').next().unwrap_or(&m.path);
                format!(
                    "{name}+{:#x}",
                    m.file_offset
                        .wrapping_add(shown.0.wrapping_sub(m.span.start.0))
                )
            }
            None => shown.to_string(),
        };
        CodeFrame {
            function,
            module: mapping.map(|m| m.path.clone()),
            ..CodeFrame::default()
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
        if let Some(stack) = context.stacks.iter().find(|s| s.span.contains(address)) {
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
        let mut allocation = Vec::new();
        for &ret in &block.allocation {
            let mut frames = self.frames_of_return(ret);
            self.mark_wrappers(ret, &mut frames);
            allocation.extend(frames);
        }
        leave_start_out(&mut allocation);
        let ty = self.allocated_type(&block.allocation, block.span.len);
        let holder = self.holder(&block.allocation);
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

    /// The path to the element and field at `offset` of `object`, beginning with the variable's
    /// name; `None` if the object's type is not known.
    pub fn field_at(&mut self, object: &ObjectName, offset: u64) -> Option<String> {
        let handle = object.type_handle?;
        if object.kind == ObjectKind::Heap {
            return self.field_path(handle, object.size?, offset);
        }
        let question = format!("inside {offset:x}");
        let inside = self.recalled_of_type(handle, &question, |names, handle| {
            let types = &names.loaded(handle)?.tables.types;
            Some(path::path(types, TypeId(handle.ty), offset, true))
        })?;
        Some(format!("{}{inside}", object.name.as_deref().unwrap_or("")))
    }

    /// The path to the byte at `offset` of a heap block of `block` bytes that holds one `ty` or an
    /// array of them: `.hits`, `[3].hits`; empty for a block that is one scalar. `None` if the
    /// type's size is not known.
    pub fn field_path(&mut self, ty: TypeHandle, block: u64, offset: u64) -> Option<String> {
        let question = format!("field {block:x} {offset:x}");
        self.recalled_of_type(ty, &question, |names, ty| {
            names.loaded_field_path(ty, block, offset)
        })
    }

    fn loaded_field_path(&mut self, ty: TypeHandle, block: u64, offset: u64) -> Option<String> {
        let types = &self.loaded(ty)?.tables.types;
        let id = TypeId(ty.ty);
        let size = types.size(id).filter(|&s| s > 0)?;
        let inside = path::path(types, id, offset % size, true);
        if block >= 2 * size {
            Some(format!("[{}]{inside}", offset / size))
        } else if offset < size {
            Some(inside.trim_start().to_owned())
        } else {
            Some(format!("+{offset}"))
        }
    }

    /// The name of `ty` in the syntax of its language.
    pub fn type_name(&mut self, ty: TypeHandle) -> Option<String> {
        self.recalled_of_type(ty, "name", |names, ty| {
            let Tables { info, types, .. } = &mut names.loaded(ty)?.tables;
            Some(types.name(info, TypeId(ty.ty)))
        })
    }

    /// Whether `ty`, or its element, is a record of the program's own.
    pub fn is_own_record(&mut self, ty: TypeHandle) -> bool {
        self.recalled_of_type(ty, "own", |names, ty| {
            let Some(debug) = names.loaded(ty) else {
                return false;
            };
            let types = &debug.tables.types;
            let ty = TypeId(ty.ty);
            types.is_own_record(types.element(ty).unwrap_or(ty))
        })
    }

    /// The language in which `ty` was written; `None` if the file does not say.
    pub fn language_of(&mut self, ty: TypeHandle) -> Option<Language> {
        self.recalled_of_type(ty, "language", |names, ty| {
            let types = &names.loaded(ty)?.tables.types;
            let language = types.get(TypeId(ty.ty))?.language;
            (language != Language::Other).then_some(language)
        })
    }

    /// The language in which the function at `code` was written.
    pub fn language_at(&mut self, code: CodeAddress) -> Option<Language> {
        let placed = self.place(Address(self.original(code).0))?;
        let question = || format!("language {:x}", placed.link.0);
        self.recalled(placed.module, question, |names| {
            let (debug, limits) = names.debug_for_frames(placed.module)?;
            let (die, ..) = debug.tables.function(placed.link, limits)?;
            let language = debug.tables.info.unit(die.unit)?.language();
            (language != Language::Other).then_some(language)
        })
    }

    /// The size of `ty` in bytes.
    pub fn type_size(&self, ty: TypeHandle) -> Option<u64> {
        let debug = self
            .modules
            .get(ty.module as usize)?
            .debug
            .as_ref()?
            .as_ref()?;
        debug.tables.types.size(TypeId(ty.ty))
    }

    /// The size of an element of the array `ty`.
    fn element_size(&mut self, ty: TypeHandle) -> Option<u64> {
        self.recalled_of_type(ty, "element", |names, ty| {
            let types = &names.loaded(ty)?.tables.types;
            types.element(TypeId(ty.ty)).and_then(|e| types.size(e))
        })
    }

    fn loaded(&mut self, ty: TypeHandle) -> Option<&mut Debug> {
        self.modules
            .get_mut(ty.module as usize)?
            .debug
            .as_mut()?
            .as_mut()
    }

    /// The typed memory operand of the instruction at `code`.
    pub fn typed_access(&mut self, code: CodeAddress) -> Option<TypedAccess> {
        let placed = self.place(Address(self.original(code).0))?;
        let module = placed.module;
        let question = || format!("access {:x}", placed.link.0);
        let (mut access, place) = self.recalled(module, question, |names| {
            let access = names.loaded_access(placed)?;
            let place = names.place_of(module, TypeId(access.type_handle.ty))?;
            Some((access, place))
        })?;
        access.type_handle = self.handle(module, TypeId(access.type_handle.ty), place)?;
        Some(access)
    }

    fn loaded_access(&mut self, placed: Placed) -> Option<TypedAccess> {
        let executable = self.executable() == Some(placed.module);
        let Self {
            modules,
            options,
            limits,
            ..
        } = self;
        let (debug, image) = modules.get_mut(placed.module)?.debug(options, limits)?;
        let (touched, variable) =
            debug.touched(placed.link, image, executable, &mut limits.sentences)?;
        let Tables { info, types, .. } = &mut debug.tables;
        let stride = types.stride(touched.ty).unwrap_or(0);
        let offset = types.known_offset(touched.ty, touched.offset, touched.modulo);
        let exact = touched.modulo == 0;
        let field = offset.map(|offset| {
            path::path(types, touched.ty, offset, exact)
                .trim_start()
                .to_owned()
        });
        Some(TypedAccess {
            storage: touched.storage,
            variable,
            type_name: types.name(info, touched.ty),
            type_handle: TypeHandle {
                module: placed.module as u32,
                ty: touched.ty.0,
            },
            own_record: types.is_own_record(touched.ty),
            is_head: types.is_head(touched.ty),
            type_size: types.size(touched.ty).unwrap_or(0),
            field: field.filter(|f| !f.is_empty()),
            offset_in_type: offset,
            exact,
            element_stride: stride,
        })
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
