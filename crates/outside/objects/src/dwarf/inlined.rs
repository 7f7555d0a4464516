//! The inlined functions around an instruction: which code each covers, and what it returns. Called
//! for the call stacks of allocations. Must not name them; `addr2line` does that.

use super::DebugInfo;
use super::ranges::ranges_of;
use super::unit::DieRef;
use gimli::{UnitOffset, constants as dw};

/// The code of an inlined function, as first addresses and those after the last, and the entry of
/// the type that it returns.
type Found = (Vec<(u64, u64)>, Option<DieRef>);

impl DebugInfo {
    /// The functions that are inlined in the function at `die` and whose code holds `address`,
    /// outermost first.
    pub(crate) fn inlined_at(&self, die: DieRef, address: u64) -> Vec<Found> {
        let mut found = Vec::new();
        let Some(loaded) = self.unit(die.unit) else {
            return found;
        };
        let unit = loaded.unit.clone();
        let Ok(mut entries) = unit.entries_at_offset(UnitOffset(die.offset)) else {
            return found;
        };
        if !matches!(entries.next_entry(), Ok(true)) {
            return found;
        }
        let top = entries.current().map_or(0, |root| root.depth());
        while let Ok(Some(entry)) = entries.next_dfs() {
            if entry.depth() <= top {
                break;
            }
            if entry.tag() != dw::DW_TAG_inlined_subroutine {
                continue;
            }
            let ranges: Vec<(u64, u64)> = ranges_of(&loaded.dwarf, &unit, entry).collect();
            if !ranges.iter().any(|r| (r.0..r.1).contains(&address)) {
                continue;
            }
            let this = DieRef {
                unit: die.unit,
                offset: entry.offset().0,
            };
            let returns = self.inherited(this, dw::DW_AT_type);
            found.push((
                ranges,
                returns.and_then(|(at, ty)| self.resolve(at.unit, &ty)),
            ));
        }
        found
    }
}
