//! Types as owned values, read from the debug information when a query first needs them. Targets of
//! pointers stay references until they are needed, so that one query never reads a program's whole
//! type graph. Used by the tables of variables and by [`crate::path`]; one table per module.

use crate::die::LoadedEntry;
use crate::dwarf::{DebugInfo, DieRef, LoadedUnit};
use crate::fold;
use gimli::{AttributeValue, constants as dw};
use std::collections::HashMap;

/// A type's number in its module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct TypeId(pub(crate) u32);

/// The language in whose syntax a type's name is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Language {
    #[default]
    C,
    Cpp,
    Rust,
}

#[derive(Clone, Debug)]
pub(crate) struct Member {
    /// `None` for base classes and anonymous members.
    pub(crate) name: Option<&'static str>,
    pub(crate) ty: TypeId,
    pub(crate) offset: u64,
    /// Size in bytes; `None` for a flexible array.
    pub(crate) size: Option<u64>,
}

#[derive(Clone, Debug)]
pub(crate) enum Shape {
    /// A number, an enumeration, a function: a type without parts.
    Scalar,
    Pointer {
        to: Option<DieRef>,
        sign: &'static str,
    },
    Record {
        keyword: &'static str,
        members: Vec<Member>,
    },
    Array {
        element: TypeId,
        counts: Vec<Option<u64>>,
    },
    /// A typedef or a qualified type.
    Alias {
        to: Option<TypeId>,
        qualifier: &'static str,
    },
}

#[derive(Clone, Debug)]
pub(crate) struct Type {
    /// Qualified by scopes, not shortened.
    pub(crate) name: Option<String>,
    pub(crate) size: Option<u64>,
    pub(crate) shape: Shape,
    pub(crate) language: Language,
}

/// The types of one module that have been needed.
#[derive(Debug, Default)]
pub(crate) struct TypeTable {
    types: Vec<Type>,
    known: HashMap<DieRef, TypeId>,
    /// Complete records of all units by unqualified name, for declarations.
    records: Option<HashMap<&'static str, Vec<DieRef>>>,
}

/// A type larger than the address space is taken for a broken file.
const MAX_SIZE: u64 = 1 << 48;
/// Types nested deeper than this are taken for a broken file.
const MAX_DEPTH: u32 = 64;

impl TypeTable {
    pub(crate) fn get(&self, id: TypeId) -> Option<&Type> {
        self.types.get(id.0 as usize)
    }

    /// The type described by the entry `die`.
    pub(crate) fn load(
        &mut self,
        debug: &mut DebugInfo,
        die: DieRef,
        depth: u32,
    ) -> Option<TypeId> {
        if let Some(&known) = self.known.get(&die) {
            return Some(known);
        }
        if depth > MAX_DEPTH {
            return None;
        }
        let id = TypeId(u32::try_from(self.types.len()).ok()?);
        self.types.push(Type {
            name: None,
            size: None,
            shape: Shape::Scalar,
            language: Language::C,
        });
        self.known.insert(die, id);
        if let Some(ty) = self.read(debug, die, depth) {
            self.types[id.0 as usize] = ty;
        }
        Some(id)
    }

    fn read(&mut self, debug: &mut DebugInfo, die: DieRef, depth: u32) -> Option<Type> {
        let unit = debug.unit(die.unit)?.clone();
        let entry = unit.entry(die.offset)?;
        let name = debug.qualified_name(die);
        let mut ty = Type {
            name,
            size: LoadedUnit::number(&entry, dw::DW_AT_byte_size),
            shape: Shape::Scalar,
            language: unit.language(),
        };
        let pointer = |sign| Shape::Pointer {
            to: entry
                .attr_value(dw::DW_AT_type)
                .and_then(|t| debug.resolve(die.unit, &t)),
            sign,
        };
        match entry.tag() {
            dw::DW_TAG_pointer_type => ty.shape = pointer("*"),
            dw::DW_TAG_reference_type => ty.shape = pointer("&"),
            dw::DW_TAG_rvalue_reference_type => ty.shape = pointer("&&"),
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                if entry.attr(dw::DW_AT_declaration).is_some()
                    || entry.attr(dw::DW_AT_signature).is_some()
                {
                    return self.complete(debug, die, &entry, &ty, depth);
                }
                let union = entry.tag() == dw::DW_TAG_union_type;
                let members = self.members(debug, die, depth);
                let keyword = if union { "union" } else { "struct" };
                ty.shape = Shape::Record { keyword, members };
            }
            dw::DW_TAG_array_type => {
                let element = self.nested(debug, die.unit, &entry, depth)?;
                let counts = counts(&unit, die.offset);
                ty.size = ty.size.or_else(|| {
                    let size = self.size(element)?;
                    counts
                        .iter()
                        .try_fold(size, |size, &count| size.checked_mul(count?))
                });
                ty.shape = Shape::Array { element, counts };
            }
            tag => {
                if let Some(qualifier) = alias(tag) {
                    let to = self.nested(debug, die.unit, &entry, depth);
                    ty.size = ty.size.or_else(|| self.size(to?));
                    ty.shape = Shape::Alias { to, qualifier };
                } else if tag == dw::DW_TAG_enumeration_type && ty.language == Language::C {
                    ty.name = ty.name.map(|n| format!("enum {n}"));
                }
            }
        }
        if matches!(ty.shape, Shape::Pointer { .. }) {
            ty.size = Some(8);
        }
        ty.size = ty.size.filter(|&size| size < MAX_SIZE);
        Some(ty)
    }

    fn nested(
        &mut self,
        debug: &mut DebugInfo,
        unit: u32,
        entry: &LoadedEntry,
        depth: u32,
    ) -> Option<TypeId> {
        let die = debug.resolve(unit, &entry.attr_value(dw::DW_AT_type)?)?;
        self.load(debug, die, depth + 1)
    }

    /// The definition for the declaration at `die`, or an empty record of its name.
    fn complete(
        &mut self,
        debug: &mut DebugInfo,
        die: DieRef,
        entry: &LoadedEntry,
        declared: &Type,
        depth: u32,
    ) -> Option<Type> {
        let by_signature = entry
            .attr_value(dw::DW_AT_signature)
            .and_then(|s| debug.resolve(die.unit, &s));
        let found = by_signature.or_else(|| self.definition(debug, declared.name.as_deref()?));
        let found = found
            .filter(|&f| f != die)
            .and_then(|f| self.load(debug, f, depth + 1));
        let complete = found.and_then(|f| self.get(f)).cloned();
        complete.or_else(|| {
            Some(Type {
                shape: Shape::Record {
                    keyword: "struct",
                    members: Vec::new(),
                },
                ..declared.clone()
            })
        })
    }

    fn definition(&mut self, debug: &mut DebugInfo, name: &str) -> Option<DieRef> {
        if self.records.is_none() {
            let mut all: HashMap<&'static str, Vec<DieRef>> = HashMap::new();
            for unit in 0..debug.loaded_units() {
                let Some(index) = debug.index(unit) else {
                    continue;
                };
                for &(name, offset) in &index.records {
                    all.entry(name).or_default().push(DieRef { unit, offset });
                }
            }
            self.records = Some(all);
        }
        let last = name.rsplit("::").next().unwrap_or(name);
        // The arguments of a template may contain `::`, too.
        let last = if name.ends_with('>') { name } else { last };
        let candidates = self.records.as_ref()?.get(last).cloned()?;
        candidates
            .into_iter()
            .find(|&c| debug.qualified_name(c).as_deref() == Some(name))
    }

    fn members(&mut self, debug: &mut DebugInfo, die: DieRef, depth: u32) -> Vec<Member> {
        let Some(unit) = debug.unit(die.unit).cloned() else {
            return Vec::new();
        };
        let mut found = Vec::new();
        let mut entries = Vec::new();
        let _ = collect_members(&unit, die.offset, &mut entries);
        for entry in entries {
            let Some(ty) = self.nested(debug, die.unit, &entry, depth) else {
                continue;
            };
            let Some((offset, bits)) = placement(&entry, self.size(ty)) else {
                continue;
            };
            let size = match bits {
                Some((first, count)) => Some(first.saturating_add(count).div_ceil(8)),
                None => self.size(ty),
            };
            let name = match entry.tag() {
                dw::DW_TAG_inheritance => None,
                _ => entry.attr_value(dw::DW_AT_name).and_then(|n| unit.text(n)),
            };
            found.push(Member {
                name,
                ty,
                offset,
                size,
            });
        }
        found
    }

    /// The size of a type in bytes.
    pub(crate) fn size(&self, id: TypeId) -> Option<u64> {
        self.get(id)?.size
    }

    /// Distance between the elements that a pointer to `id` steps over: the size of the type, or of
    /// its element if it is an array itself.
    pub(crate) fn stride(&self, id: TypeId) -> Option<u64> {
        let plain = self.plain(id);
        match &self.get(plain)?.shape {
            Shape::Array { element, .. } => self.size(*element),
            _ => self.size(plain),
        }
    }

    /// The element of an array of one dimension.
    pub(crate) fn element(&self, id: TypeId) -> Option<TypeId> {
        match &self.get(self.plain(id))?.shape {
            Shape::Array { element, counts } if counts.len() == 1 => Some(*element),
            _ => None,
        }
    }

    /// `offset` from a pointer to `id` as an offset within one value of it.
    pub(crate) fn reduced(&self, id: TypeId, offset: i64) -> u64 {
        match self.size(id) {
            Some(size) if size > 0 => offset.rem_euclid(size as i64) as u64,
            _ => offset.max(0) as u64,
        }
    }

    /// The offset within one value of type `id` of an address that is `offset` from its start,
    /// known up to multiples of `modulo` (0: exactly). `None` if these multiples are in more than
    /// one field.
    pub(crate) fn known_offset(&self, id: TypeId, offset: i64, modulo: u64) -> Option<u64> {
        if modulo == 0 {
            return Some(self.reduced(id, offset));
        }
        if let Some(stride) = self
            .stride(id)
            .filter(|&s| s > 0 && modulo.is_multiple_of(s))
        {
            return Some(offset.rem_euclid(stride as i64) as u64);
        }
        // An index into an array that is a field: compilers add the array's own offset to the
        // displacement.
        let offset = u64::try_from(offset).ok()?;
        self.steps_through_array(id, offset, modulo, 0)
            .then_some(offset)
    }

    fn steps_through_array(&self, id: TypeId, offset: u64, modulo: u64, depth: u32) -> bool {
        let Some(ty) = self.get(self.plain(id)).filter(|_| depth < MAX_DEPTH) else {
            return false;
        };
        match &ty.shape {
            Shape::Array { element, .. } => match self.size(*element) {
                Some(size) if size > 0 => {
                    modulo.is_multiple_of(size)
                        || self.steps_through_array(*element, offset % size, modulo, depth + 1)
                }
                _ => false,
            },
            Shape::Record { members, .. } => members
                .iter()
                .filter(|m| {
                    offset
                        .checked_sub(m.offset)
                        .is_some_and(|o| m.size.is_none_or(|s| o < s))
                })
                .any(|m| self.steps_through_array(m.ty, offset - m.offset, modulo, depth + 1)),
            _ => false,
        }
    }

    /// The type without typedefs and qualifiers.
    pub(crate) fn plain(&self, mut id: TypeId) -> TypeId {
        for _ in 0..MAX_DEPTH {
            match self.get(id).map(|t| &t.shape) {
                Some(Shape::Alias { to: Some(to), .. }) => id = *to,
                _ => break,
            }
        }
        id
    }

    /// Whether `ty` is the base class of the type that `make_shared` allocates: the head of a
    /// larger block, never one element of several.
    pub(crate) fn is_shared_head(&self, ty: TypeId) -> bool {
        let name = self.get(self.plain(ty)).and_then(|t| t.name.as_deref());
        name.is_some_and(|name| name.starts_with("std::_Sp_counted_base"))
    }

    /// Whether `id` is a record that the program itself declares.
    pub(crate) fn is_own_record(&self, id: TypeId) -> bool {
        self.get(self.plain(id)).is_some_and(|t| {
            let library = t.name.as_deref().is_some_and(crate::path::is_library);
            matches!(t.shape, Shape::Record { .. }) && !library
        })
    }

    pub(crate) fn is_pointer(&self, id: TypeId) -> bool {
        matches!(self.get(id).map(|t| &t.shape), Some(Shape::Pointer { .. }))
    }

    /// The target type of a pointer or reference; `None` for other types and for `void *`.
    pub(crate) fn pointee(&mut self, debug: &mut DebugInfo, id: TypeId) -> Option<TypeId> {
        let Shape::Pointer { to: Some(to), .. } = self.get(self.plain(id))?.shape else {
            return None;
        };
        let target = self.load(debug, to, 0)?;
        let plain = self.plain(target);
        // `const void` is an alias of no type.
        match self.get(plain)?.shape {
            Shape::Alias { to: None, .. } => None,
            _ => Some(target),
        }
    }

    /// The pointer or scalar at `offset` of a value of type `id`.
    pub(crate) fn leaf(&self, id: TypeId, offset: u64) -> Option<TypeId> {
        self.leaf_within(id, offset, 0)
    }

    fn leaf_within(&self, id: TypeId, offset: u64, depth: u32) -> Option<TypeId> {
        if depth > MAX_DEPTH {
            return None;
        }
        let id = self.plain(id);
        match &self.get(id)?.shape {
            Shape::Scalar | Shape::Pointer { .. } => (offset == 0).then_some(id),
            Shape::Array { element, .. } => {
                let size = self.size(*element).filter(|&s| s > 0)?;
                self.leaf_within(*element, offset % size, depth + 1)
            }
            Shape::Record { members, .. } => members
                .iter()
                .filter(|m| {
                    offset
                        .checked_sub(m.offset)
                        .is_some_and(|o| m.size.is_none_or(|s| o < s))
                })
                .find_map(|m| self.leaf_within(m.ty, offset - m.offset, depth + 1)),
            Shape::Alias { .. } => None,
        }
    }

    /// The type's name in the syntax of its language.
    pub(crate) fn name(&mut self, debug: &mut DebugInfo, id: TypeId) -> String {
        self.name_within(debug, id, 0)
    }

    fn name_within(&mut self, debug: &mut DebugInfo, id: TypeId, depth: u32) -> String {
        let Some(ty) = self.get(id).cloned() else {
            return "?".to_owned();
        };
        if depth > MAX_DEPTH {
            return "…".to_owned();
        }
        let inner = |table: &mut Self, debug: &mut DebugInfo, to: Option<TypeId>| match to {
            Some(to) => table.name_within(debug, to, depth + 1),
            None => "void".to_owned(),
        };
        match (&ty.shape, &ty.name) {
            (Shape::Record { keyword, .. }, name) => {
                let name = name.as_deref().unwrap_or("(anonymous)");
                match ty.language {
                    Language::C => format!("{keyword} {name}"),
                    Language::Cpp => fold::cpp(name),
                    Language::Rust => fold::rust_type(name),
                }
            }
            // `value_type` and similar names say less than the type itself.
            (Shape::Alias { to: Some(to), .. }, Some(name))
                if name.contains("::") && crate::path::is_library(name) =>
            {
                inner(self, debug, Some(*to))
            }
            (_, Some(name)) => match ty.language {
                Language::Rust => fold::rust_type(name),
                _ => fold::cpp(name),
            },
            (Shape::Pointer { to, sign }, None) => {
                let to = to.and_then(|to| self.load(debug, to, 0));
                let to = inner(self, debug, to);
                // Stars follow each other without a blank, as in `char **`.
                let blank = if to.ends_with('*') { "" } else { " " };
                format!("{to}{blank}{sign}")
            }
            (Shape::Array { element, counts }, None) => {
                let element = inner(self, debug, Some(*element));
                array_name(ty.language, element, counts)
            }
            (Shape::Alias { to: Some(to), .. }, None) if self.is_pointer(*to) => {
                inner(self, debug, Some(*to))
            }
            (Shape::Alias { to, qualifier }, None) => {
                format!("{qualifier}{}", inner(self, debug, *to))
            }
            (Shape::Scalar, None) => "function".to_owned(),
        }
    }
}

fn array_name(language: Language, element: String, counts: &[Option<u64>]) -> String {
    let text = |c: &Option<u64>| c.map(|c| c.to_string()).unwrap_or_default();
    match language {
        Language::Rust => counts
            .iter()
            .rev()
            .fold(element, |inner, c| format!("[{inner}; {}]", text(c))),
        _ => {
            let all: String = counts.iter().map(|c| format!("[{}]", text(c))).collect();
            format!("{element}{all}")
        }
    }
}

fn alias(tag: gimli::DwTag) -> Option<&'static str> {
    Some(match tag {
        dw::DW_TAG_typedef => "",
        dw::DW_TAG_const_type => "const ",
        dw::DW_TAG_volatile_type => "volatile ",
        dw::DW_TAG_atomic_type => "_Atomic ",
        dw::DW_TAG_restrict_type => "restrict ",
        _ => return None,
    })
}

/// The lengths of an array's dimensions, outermost first.
fn counts(unit: &LoadedUnit, offset: usize) -> Vec<Option<u64>> {
    let mut counts = Vec::new();
    let _ = unit.for_each_child(offset, |entry| {
        if entry.tag() == dw::DW_TAG_subrange_type {
            let count = LoadedUnit::number(entry, dw::DW_AT_count);
            let upper = LoadedUnit::number(entry, dw::DW_AT_upper_bound);
            // `T x[0]` has no bound or one of -1.
            counts.push(
                count
                    .or(upper.and_then(|u| u.checked_add(1)))
                    .filter(|&c| c < MAX_SIZE),
            );
        }
    });
    if counts.is_empty() {
        counts.push(None);
    }
    counts
}

/// Members and base classes of the record at `offset`; the fields of a Rust enum's variants are
/// overlapping members.
fn collect_members(
    unit: &LoadedUnit,
    offset: usize,
    found: &mut Vec<LoadedEntry>,
) -> Result<(), gimli::Error> {
    let mut inner = Vec::new();
    unit.for_each_child(offset, |entry| match entry.tag() {
        dw::DW_TAG_member
            // A static member is only declared here; its definition is elsewhere.
            if entry.attr(dw::DW_AT_declaration).is_none()
                && entry.attr(dw::DW_AT_external).is_none() =>
        {
            found.push(entry.clone());
        }
        dw::DW_TAG_inheritance => found.push(entry.clone()),
        dw::DW_TAG_variant_part | dw::DW_TAG_variant => inner.push(entry.offset().0),
        _ => {}
    })?;
    for offset in inner {
        collect_members(unit, offset, found)?;
    }
    Ok(())
}

/// Byte offset of a member, and for bit fields the first bit in that byte and the number of bits.
/// `None` for virtual bases, whose offset is not fixed.
fn placement(entry: &LoadedEntry, size: Option<u64>) -> Option<(u64, Option<(u64, u64)>)> {
    let bits = LoadedUnit::number(entry, dw::DW_AT_bit_size);
    if let (Some(first), Some(count)) = (LoadedUnit::number(entry, dw::DW_AT_data_bit_offset), bits)
    {
        return Some((first / 8, Some((first % 8, count))));
    }
    let at = match entry.attr_value(dw::DW_AT_data_member_location) {
        None => 0,
        Some(AttributeValue::Exprloc(_) | AttributeValue::Block(_)) => return None,
        Some(value) => value.udata_value()?,
    };
    if let (Some(from_top), Some(count)) = (LoadedUnit::number(entry, dw::DW_AT_bit_offset), bits) {
        // DWARF 3 counts from the most significant bit of the storage unit.
        let storage = LoadedUnit::number(entry, dw::DW_AT_byte_size)
            .or(size)?
            .checked_mul(8)?;
        let gap = storage.checked_sub(from_top.checked_add(count)?)?;
        let first = at.checked_mul(8)?.checked_add(gap)?;
        return Some((first / 8, Some((first % 8, count))));
    }
    Some((at, None))
}
