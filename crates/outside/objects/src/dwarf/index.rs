//! One walk over a unit's entries: the enclosing scope of each entry, the code ranges of its
//! functions, and its variables at fixed addresses. Made when a unit is first needed; all other
//! entries (types, locals) are read on demand.

use super::ranges::ranges_of;
use super::sections::{Attribute, Bytes, Dwarf, Unit, text_of};
use gimli::{AttributeValue, DwTag, Operation, constants as dw};
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
                // A function that the linker dropped starts at 0.
                let ranges = ranges_of(dwarf, unit, entry).filter(|range| range.0 > 0);
                self.functions
                    .extend(ranges.map(|(begin, end)| (begin, end, offset)));
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
                    self.records.push((text_of(name), offset));
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
