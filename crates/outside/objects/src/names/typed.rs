//! Types: their names, fields, sizes and languages, and the typed operands of instructions.

use super::placed::Placed;
use super::process::Names;
use crate::answer::{ArrayPart, ObjectKind, ObjectName, TypeHandle, TypedAccess};
use crate::dwarf::Language;
use crate::module::Debug;
use crate::path;
use crate::tables::Tables;
use crate::types::TypeId;
use sunder_access::{Address, CodeAddress};

impl Names {
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
        let image = &self.modules[placed.module].image;
        if image.symbols.is_in_go(placed.link) {
            return Some(Language::Go);
        }
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
    pub(super) fn element_size(&mut self, ty: TypeHandle) -> Option<u64> {
        self.recalled_of_type(ty, "element", |names, ty| {
            let types = &names.loaded(ty)?.tables.types;
            types.element(TypeId(ty.ty)).and_then(|e| types.size(e))
        })
    }

    /// The arrays in a value of type `ty`, by ascending offset, without those in their elements.
    pub fn arrays_in(&mut self, ty: TypeHandle) -> Vec<ArrayPart> {
        self.recalled_of_type(ty, "arrays", |names, ty| {
            let debug = names.loaded(ty);
            debug.map_or(Vec::new(), |debug| debug.tables.types.arrays(TypeId(ty.ty)))
        })
    }

    pub(super) fn loaded(&mut self, ty: TypeHandle) -> Option<&mut Debug> {
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
        let (debug, image, limits) = self.debug_and_image(placed.module)?;
        let (touched, variable) = debug.touched(placed.link, image, executable, limits)?;
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
