//! How deep the inlined functions of a unit are nested. `addr2line` reads them by a function that
//! calls itself for each level, and the program's file decides on the levels; so [`super`] looks
//! here first.

use super::sections::Unit;
use gimli::constants as dw;

/// Inlined functions nested deeper than this are taken for a broken file: compilers stop far
/// earlier.
const MAX_INLINED: usize = 256;

/// Whether inlined functions of `unit` are nested deeper than [`MAX_INLINED`], or can't be read.
pub(super) fn is_deep(unit: &Unit) -> bool {
    walk(unit).unwrap_or(true)
}

fn walk(unit: &Unit) -> Result<bool, gimli::Error> {
    let mut entries = unit.entries_raw(None)?;
    // The depths of the inlined functions around the entry being read.
    let mut around: Vec<isize> = Vec::new();
    while !entries.is_empty() {
        let depth = entries.next_depth();
        let Some(kind) = entries.read_abbreviation()? else {
            continue;
        };
        while around.last().is_some_and(|outer| *outer >= depth) {
            around.pop();
        }
        if kind.tag() == dw::DW_TAG_inlined_subroutine {
            around.push(depth);
            if around.len() > MAX_INLINED {
                return Ok(true);
            }
        }
        entries.skip_attributes(kind.attributes())?;
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dwarf::LoadedUnit;
    use crate::dwarf::made::{dwarf_of, one_unit};

    /// Entries without attributes, all with children: a unit, a function, an inlined function and
    /// a block.
    const ABBREVIATIONS: &[u8] = &[
        1, 0x11, 1, 0, 0, //
        2, 0x2e, 1, 0, 0, //
        3, 0x1d, 1, 0, 0, //
        4, 0x0b, 1, 0, 0, //
        0,
    ];

    /// Whether a unit with these entries is deep.
    fn deep(entries: &[u8]) -> bool {
        let dwarf = dwarf_of(one_unit(entries), ABBREVIATIONS.to_vec());
        is_deep(&LoadedUnit::first_of(dwarf).expect("a unit").unit)
    }

    #[test]
    fn inlined_functions_within_each_other_are_counted() {
        let nested = |count: usize| {
            let mut entries = vec![1, 2];
            for _ in 0..count {
                // In blocks, which are no levels.
                entries.extend([4, 3]);
            }
            entries.extend(vec![0; 2 * count + 2]);
            entries
        };
        for (count, wanted) in [(0, false), (MAX_INLINED, false), (MAX_INLINED + 1, true)] {
            assert_eq!(deep(&nested(count)), wanted, "{count}");
        }
        assert!(deep(&nested(1_000_000)));
    }

    #[test]
    fn inlined_functions_beside_each_other_are_not() {
        let mut entries = vec![1, 2];
        for _ in 0..10 * MAX_INLINED {
            entries.extend([3, 0]);
        }
        entries.extend([0, 0]);
        assert!(!deep(&entries));
        // An unknown kind of entry after them.
        entries.splice(entries.len() - 1.., [9, 0]);
        assert!(deep(&entries));
    }
}
