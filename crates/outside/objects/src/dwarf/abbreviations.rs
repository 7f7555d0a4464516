//! Whether the kinds of entries that a file describes, which DWARF calls abbreviations, are those of a
//! compiler. An entry takes one byte and may be of a kind with any number of attributes that take none, and
//! each unit may begin its list of kinds at another place of one list: reading then takes the product of two
//! numbers that the file chooses.

use gimli::constants as dw;
use gimli::{DebugAbbrevOffset, Dwarf, EndianSlice, LittleEndian, Reader, Section};
use std::collections::BTreeSet;

type Bytes = EndianSlice<'static, LittleEndian>;

/// Attributes of a kind that take no bytes in an entry. Compilers write a handful.
const MOST_EMPTY: usize = 64;
/// Lists of kinds that overlap are read so many times as often as the section has bytes, at most.
const MOST_TIMES: usize = 4;

/// Whether all kinds of entries of the units of `dwarf` may be read.
pub(super) fn are_usual(dwarf: &Dwarf<Bytes>) -> bool {
    let mut lists: BTreeSet<usize> = BTreeSet::new();
    let mut units = dwarf.units();
    while let Ok(Some(unit)) = units.next() {
        lists.insert(unit.debug_abbrev_offset().0);
    }
    let mut units = dwarf.type_units();
    while let Ok(Some(unit)) = units.next() {
        lists.insert(unit.debug_abbrev_offset().0);
    }
    let section = dwarf.debug_abbrev.reader();
    let mut left = section.len().saturating_mul(MOST_TIMES);
    for list in lists {
        // What can't be read, the parser refuses.
        let Some(length) = length_of(section, DebugAbbrevOffset(list)) else {
            return false;
        };
        let Some(rest) = left.checked_sub(length) else {
            return false;
        };
        left = rest;
    }
    true
}

/// The bytes of the list of kinds at `offset`, as far as they can be read; `None` if one of them is no
/// compiler's.
fn length_of(section: &Bytes, offset: DebugAbbrevOffset) -> Option<usize> {
    let mut bytes = *section;
    if bytes.skip(offset.0).is_err() {
        return Some(0);
    }
    let before = bytes.len();
    let mut kind = || -> gimli::Result<Option<usize>> {
        if bytes.read_uleb128()? == 0 {
            return Ok(None);
        }
        bytes.read_uleb128()?;
        bytes.read_u8()?;
        let mut empty = 0;
        loop {
            let name = bytes.read_uleb128()?;
            let form = gimli::DwForm(bytes.read_uleb128_u16()?);
            if form == dw::DW_FORM_implicit_const {
                bytes.read_sleb128()?;
            }
            if name == 0 && form.0 == 0 {
                return Ok(Some(empty));
            }
            let takes_none = [dw::DW_FORM_flag_present, dw::DW_FORM_implicit_const];
            empty += usize::from(takes_none.contains(&form));
        }
    };
    while let Ok(Some(empty)) = kind() {
        if empty > MOST_EMPTY {
            return None;
        }
    }
    Some(before - bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::made::dwarf_of;

    /// Units of version 4 without entries, whose lists of kinds begin at these places of `kinds`.
    fn usual(kinds: Vec<u8>, lists: &[u32]) -> bool {
        let mut info = Vec::new();
        for list in lists {
            info.extend(7_u32.to_le_bytes());
            info.extend([4, 0]);
            info.extend(list.to_le_bytes());
            info.push(8);
        }
        are_usual(&dwarf_of(info, kinds))
    }

    /// A kind of entry with so many attributes that are there by being named, and its list's end.
    fn kind(attributes: usize) -> Vec<u8> {
        let mut bytes = vec![1, 0x34, 0];
        bytes.extend([0x3f, 0x19].repeat(attributes));
        bytes.extend([0, 0, 0]);
        bytes
    }

    #[test]
    fn a_kind_with_countless_attributes_that_take_nothing_is_unusual() {
        assert!(usual(kind(MOST_EMPTY), &[0]));
        assert!(!usual(kind(MOST_EMPTY + 1), &[0]));
        // Of a list that no unit uses nothing is read.
        let mut both = kind(1);
        let second = both.len() as u32;
        both.extend(kind(50_000));
        assert!(usual(both.clone(), &[0]));
        assert!(!usual(both, &[0, second]));
    }

    #[test]
    fn units_may_share_a_list_but_not_begin_it_anywhere() {
        // Kinds of five bytes each.
        let kinds: Vec<u8> = [1, 0x34, 0, 0, 0].repeat(10_000);
        let many = |lists: &[u32]| usual([kinds.clone(), vec![0]].concat(), lists);
        assert!(many(&[0; 1000]));
        assert!(many(&[0, 5]));
        let anywhere: Vec<u32> = (0..10_000).map(|n| 5 * n).collect();
        assert!(!many(&anywhere));
    }

    #[test]
    fn a_list_that_breaks_off_is_left_to_the_parser() {
        assert!(usual(vec![1, 0x34], &[0, 1, 2, 50]));
    }
}
