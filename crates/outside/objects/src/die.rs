//! One walk over a unit's entries: the enclosing scope of each entry, the code ranges of its
//! functions, and its variables at fixed addresses. [`crate::dwarf`] makes it when a unit is first
//! needed; all other entries (types, locals) are read on demand.

use crate::dwarf::{Attribute, Bytes, DebugInfo, DieRef, Dwarf, LoadedUnit, Unit};
use crate::types::Language;
use gimli::{AttributeValue, DwTag, Operation, UnitOffset, constants as dw};
use std::collections::HashMap;

/// The location of a variable with static storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StaticLocation {
    /// At this link address.
    Address(u64),
    /// At this offset in the module's TLS block.
    Tls(u64),
}

/// The result of one walk over a unit.
#[derive(Debug, Default)]
pub(crate) struct UnitIndex {
    /// The enclosing named scope (namespace, type or function) of an entry.
    scope_of: HashMap<usize, usize>,
    /// Code ranges of functions, by start.
    functions: Vec<(u64, u64, usize)>,
    /// Variables with static storage.
    pub(crate) variables: Vec<(StaticLocation, usize)>,
    /// Complete record types by unqualified name, to complete declarations.
    pub(crate) records: Vec<(&'static str, usize)>,
}

impl UnitIndex {
    /// Walks `unit`; a broken entry ends the walk, and what was found before it is kept.
    pub(crate) fn build(dwarf: &Dwarf, unit: &Unit) -> Self {
        let mut index = Self::default();
        let _ = index.walk(dwarf, unit);
        index.functions.sort_unstable();
        index
    }

    fn walk(&mut self, dwarf: &Dwarf, unit: &Unit) -> Result<(), gimli::Error> {
        let mut entries = unit.entries_raw(None)?;
        let mut entry = gimli::DebuggingInformationEntry::null();
        // The scope at each depth of the path to the entry being read.
        let mut scopes: Vec<Option<usize>> = Vec::new();
        while !entries.is_empty() {
            let depth = usize::try_from(entries.next_depth()).unwrap_or(0);
            if !entries.read_entry(&mut entry)? {
                continue;
            }
            scopes.truncate(depth);
            let scope = scopes.last().copied().flatten();
            let offset = entry.offset().0;
            if let (Some(scope), true) = (scope, is_named(entry.tag())) {
                self.scope_of.insert(offset, scope);
            }
            let inner = if is_scope(entry.tag()) {
                Some(offset)
            } else {
                scope
            };
            scopes.resize(depth, None);
            scopes.push(inner);
            self.note(dwarf, unit, &entry);
        }
        Ok(())
    }

    fn note(
        &mut self,
        dwarf: &Dwarf,
        unit: &Unit,
        entry: &gimli::DebuggingInformationEntry<Bytes>,
    ) {
        let offset = entry.offset().0;
        match entry.tag() {
            dw::DW_TAG_subprogram => {
                let Ok(mut ranges) = dwarf.die_ranges(unit, entry) else {
                    return;
                };
                while let Ok(Some(range)) = ranges.next() {
                    // A function that the linker dropped starts at 0.
                    if range.begin > 0 && range.begin < range.end {
                        self.functions.push((range.begin, range.end, offset));
                    }
                }
            }
            dw::DW_TAG_variable => {
                let place = entry.attr_value(dw::DW_AT_location);
                if let Some(place) = place.and_then(|p| static_place(dwarf, unit, &p)) {
                    self.variables.push((place, offset));
                }
            }
            dw::DW_TAG_structure_type | dw::DW_TAG_class_type | dw::DW_TAG_union_type => {
                let name = entry.attr_value(dw::DW_AT_name);
                let declaration = entry.attr(dw::DW_AT_declaration).is_some();
                if let (Some(name), false) = (name, declaration)
                    && let Ok(name) = dwarf.attr_string(unit, name)
                {
                    self.records.push((crate::dwarf::text_of(name), offset));
                }
            }
            _ => {}
        }
    }

    /// The enclosing named scope of the entry at `offset`.
    pub(crate) fn scope(&self, offset: usize) -> Option<usize> {
        self.scope_of.get(&offset).copied()
    }

    /// The function whose code covers `address`: its range there and its entry.
    pub(crate) fn function(&self, address: u64) -> Option<(u64, u64, usize)> {
        let end = self.functions.partition_point(|f| f.0 <= address);
        let near = &self.functions[end.saturating_sub(4)..end];
        near.iter().rev().find(|f| address < f.1).copied()
    }
}

fn is_scope(tag: DwTag) -> bool {
    matches!(
        tag,
        dw::DW_TAG_namespace
            | dw::DW_TAG_structure_type
            | dw::DW_TAG_class_type
            | dw::DW_TAG_union_type
            | dw::DW_TAG_enumeration_type
            | dw::DW_TAG_subprogram
    )
}

fn is_named(tag: DwTag) -> bool {
    is_scope(tag)
        || matches!(
            tag,
            dw::DW_TAG_variable | dw::DW_TAG_typedef | dw::DW_TAG_member
        )
}

/// The address that `location` describes, if it is the same everywhere.
pub(crate) fn static_place(
    dwarf: &Dwarf,
    unit: &Unit,
    location: &Attribute,
) -> Option<StaticLocation> {
    let AttributeValue::Exprloc(expression) = location else {
        return None;
    };
    let mut operations = expression.operations(unit.encoding());
    let mut value = match operations.next().ok()?? {
        Operation::Address { address } => address,
        Operation::AddressIndex { index } | Operation::ConstantIndex { index } => {
            dwarf.address(unit, index).ok()?
        }
        Operation::UnsignedConstant { value } => value,
        _ => return None,
    };
    let constant = matches!(
        expression.operations(unit.encoding()).next().ok()??,
        Operation::UnsignedConstant { .. } | Operation::ConstantIndex { .. }
    );
    loop {
        match operations.next().ok()? {
            // A constant alone is no address; the linker writes 0 for a variable that it dropped.
            None => return (!constant && value > 0).then_some(StaticLocation::Address(value)),
            Some(Operation::PlusConstant { value: more }) => value = value.wrapping_add(more),
            Some(Operation::TLS) => return Some(StaticLocation::Tls(value)),
            Some(_) => return None,
        }
    }
}

/// An entry with its attributes.
pub(crate) type LoadedEntry = gimli::DebuggingInformationEntry<Bytes>;

impl LoadedUnit {
    /// The value of a non-negative constant attribute.
    pub(crate) fn number(entry: &LoadedEntry, name: gimli::DwAt) -> Option<u64> {
        entry.attr(name)?.udata_value()
    }

    /// The entry at `offset` of the unit.
    pub(crate) fn entry(&self, offset: usize) -> Option<LoadedEntry> {
        self.unit.entry(UnitOffset(offset)).ok()
    }

    /// Calls `visit` for each direct child of the entry at `offset`.
    pub(crate) fn for_each_child(
        &self,
        offset: usize,
        mut visit: impl FnMut(&LoadedEntry),
    ) -> Result<(), gimli::Error> {
        let mut entries = self.unit.entries_at_offset(UnitOffset(offset))?;
        entries.next_entry()?;
        let parent = entries.current().map_or(0, |e| e.depth());
        let has_children = entries.current().is_some_and(|e| e.has_children());
        if !has_children {
            return Ok(());
        }
        entries.next_entry()?;
        loop {
            match entries.current() {
                Some(entry) if entry.depth() > parent => visit(entry),
                _ => return Ok(()),
            }
            if entries.next_sibling()?.is_none() {
                return Ok(());
            }
        }
    }

    /// The language of the unit's source.
    pub(crate) fn language(&self) -> Language {
        // The skeleton of a split unit does not have it; its split part does.
        let root = self.unit.header.root_offset().0;
        let value = self
            .entry(root)
            .and_then(|e| e.attr_value(dw::DW_AT_language));
        match value {
            Some(AttributeValue::Language(
                dw::DW_LANG_C_plus_plus
                | dw::DW_LANG_C_plus_plus_03
                | dw::DW_LANG_C_plus_plus_11
                | dw::DW_LANG_C_plus_plus_14
                | dw::DW_LANG_C_plus_plus_17
                | dw::DW_LANG_C_plus_plus_20,
            )) => Language::Cpp,
            Some(AttributeValue::Language(dw::DW_LANG_Rust)) => Language::Rust,
            _ => Language::C,
        }
    }
}

impl DebugInfo {
    /// The name of the entry `die` with its scopes: `ns::Type::member`,
    /// `function()::variable`. Declarations and origins are followed.
    pub(crate) fn qualified_name(&mut self, die: DieRef) -> Option<String> {
        let mut die = self.named(die)?;
        let mut parts = Vec::new();
        for _ in 0..MAX_SCOPES {
            let unit = self.unit(die.unit)?;
            let entry = unit.entry(die.offset)?;
            let name = entry.attr_value(dw::DW_AT_name).and_then(|n| unit.text(n));
            let function = entry.tag() == dw::DW_TAG_subprogram && !parts.is_empty();
            parts.push(match name {
                Some(name) if function => format!("{name}()"),
                Some(name) => name.to_owned(),
                None if entry.tag() == dw::DW_TAG_namespace => "(anonymous namespace)".to_owned(),
                None if parts.is_empty() => return None,
                None => "(anonymous)".to_owned(),
            });
            let Some(scope) = self.index(die.unit)?.scope(die.offset) else {
                break;
            };
            let scope = DieRef {
                unit: die.unit,
                offset: scope,
            };
            die = self.named(scope).unwrap_or(scope);
        }
        parts.reverse();
        Some(parts.join("::"))
    }

    /// The entry that has the name of `die`: itself, the declaration that it defines, or the
    /// abstract entry that it is a copy of.
    pub(crate) fn named(&self, mut die: DieRef) -> Option<DieRef> {
        for _ in 0..MAX_SCOPES {
            let entry = self.unit(die.unit)?.entry(die.offset)?;
            let other = entry
                .attr_value(dw::DW_AT_specification)
                .or_else(|| entry.attr_value(dw::DW_AT_abstract_origin));
            match other.and_then(|o| self.resolve(die.unit, &o)) {
                Some(next) => die = next,
                None => return Some(die),
            }
        }
        None
    }

    /// The first value of attribute `name` among `die` and its origins, with the unit that has it.
    pub(crate) fn inherited(
        &self,
        mut die: DieRef,
        name: gimli::DwAt,
    ) -> Option<(DieRef, Attribute)> {
        for _ in 0..MAX_SCOPES {
            let entry = self.unit(die.unit)?.entry(die.offset)?;
            if let Some(value) = entry.attr_value(name) {
                return Some((die, value));
            }
            let other = entry
                .attr_value(dw::DW_AT_specification)
                .or_else(|| entry.attr_value(dw::DW_AT_abstract_origin))?;
            die = self.resolve(die.unit, &other)?;
        }
        None
    }
}

/// Scopes and origins nested deeper than this are taken for a cycle.
const MAX_SCOPES: usize = 32;
