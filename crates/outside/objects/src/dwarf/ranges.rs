//! The code that an entry of debug information covers. `gimli` adds an entry's length to its start
//! without a check, and debug information is written by anyone; so a length is looked at here first.
//! Must be the only place that asks `gimli` for the ranges of an entry.

use super::sections::{Bytes, Dwarf, Unit};
use gimli::{AttributeValue, DebuggingInformationEntry, constants as dw};

/// The ranges of an entry that aren't empty, as first address and the one after the last. Those of a
/// list end at the first that can't be read; an entry that ends beyond all addresses has none.
pub fn ranges_of(
    dwarf: &Dwarf,
    unit: &Unit,
    entry: &DebuggingInformationEntry<Bytes>,
) -> impl Iterator<Item = (u64, u64)> {
    let ranges = if is_beyond(dwarf, unit, entry) {
        None
    } else {
        dwarf.die_ranges(unit, entry).ok()
    };
    ranges
        .into_iter()
        .flat_map(|mut ranges| std::iter::from_fn(move || ranges.next().ok().flatten()))
        .filter(|range| range.begin < range.end)
        .map(|range| (range.begin, range.end))
}

/// The same of a whole unit.
pub fn ranges_of_unit(dwarf: &Dwarf, unit: &Unit) -> Vec<(u64, u64)> {
    let mut entries = unit.entries();
    match entries.next_dfs() {
        Ok(Some(root)) => ranges_of(dwarf, unit, root).collect(),
        _ => Vec::new(),
    }
}

/// Whether some start and some length that the entry states lead beyond the last address.
fn is_beyond(dwarf: &Dwarf, unit: &Unit, entry: &DebuggingInformationEntry<Bytes>) -> bool {
    let (mut start, mut length) = (0, 0);
    for attribute in entry.attrs() {
        match (attribute.name(), attribute.value()) {
            (dw::DW_AT_low_pc, value) => {
                let address = dwarf.attr_address(unit, value).ok().flatten();
                start = start.max(address.unwrap_or(0));
            }
            (dw::DW_AT_high_pc, AttributeValue::Udata(value)) => length = length.max(value),
            _ => {}
        }
    }
    start.checked_add(length).is_none()
}
