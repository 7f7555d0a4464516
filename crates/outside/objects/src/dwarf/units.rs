//! All units of a module: those of the main file, split and supplementary ones, and where each is.

use super::nesting::is_deep;
use super::ranges::ranges_of_unit;
use super::sections::{Bytes, Dwarf, Unit, text_of};
use super::split::SplitFiles;
use super::unit::{DieRef, LoadedUnit, MAIN, Origin, SUPPLEMENTARY};
use gimli::UnitSectionOffset;
use std::collections::HashMap;
use std::sync::Arc;

/// The units, and tables to find one.
pub(super) struct Units {
    pub(super) all: Vec<LoadedUnit>,
    /// By section and offset of their first byte.
    pub(super) by_place: Vec<(Origin, usize, u32)>,
    pub(super) signatures: HashMap<u64, DieRef>,
    /// Code ranges of the units, by start.
    pub(super) ranges: Vec<(u64, u64, u32)>,
    /// The same with those of code that the linker dropped, and the largest end up to each.
    all_ranges: Vec<(u64, u64, u32, u64)>,
    /// Units without any range.
    without_range: Vec<u32>,
}

impl Units {
    pub(super) fn read(
        dwarf: &Arc<Dwarf>,
        split: &mut SplitFiles,
        limits: &mut Vec<String>,
    ) -> Self {
        let mut units = Self {
            all: Vec::new(),
            by_place: Vec::new(),
            signatures: HashMap::new(),
            ranges: Vec::new(),
            all_ranges: Vec::new(),
            without_range: Vec::new(),
        };
        units.read_main(dwarf, split, limits);
        let mut types = dwarf.type_units();
        while let Ok(Some(header)) = types.next() {
            // References by section offset never point into `.debug_types`.
            let origin = Origin(u32::MAX);
            let _ = units.add(dwarf, header, origin);
        }
        if let Some(sup) = &dwarf.sup {
            let mut headers = sup.units();
            while let Ok(Some(header)) = headers.next() {
                let _ = units.add(sup, header, SUPPLEMENTARY);
            }
        }
        units.by_place.sort_unstable();
        units.ranges.sort_unstable();
        units.all_ranges.sort_unstable();
        let mut largest = 0;
        for range in &mut units.all_ranges {
            largest = range.1.max(largest);
            range.3 = largest;
        }
        units
    }

    fn read_main(&mut self, dwarf: &Arc<Dwarf>, split: &mut SplitFiles, limits: &mut Vec<String>) {
        let mut headers = dwarf.units();
        let mut next_origin = 2;
        while let Ok(Some(header)) = headers.next() {
            let Some(number) = self.add(dwarf, header, MAIN) else {
                continue;
            };
            let skeleton = self.all[number as usize].unit.clone();
            self.add_ranges(dwarf, &skeleton, number);
            let Some(id) = skeleton.dwo_id else { continue };
            let Ok(Some(name)) = skeleton.dwo_name() else {
                continue;
            };
            let name = dwarf.attr_string(&skeleton, name).ok().map(text_of);
            let Some(other) = split.load(id, skeleton.comp_dir.map(text_of), name, dwarf, limits)
            else {
                continue;
            };
            self.add_split(&other, dwarf, &skeleton, number, Origin(next_origin));
            next_origin += 1;
        }
    }

    fn add(
        &mut self,
        dwarf: &Arc<Dwarf>,
        header: gimli::UnitHeader<Bytes>,
        origin: Origin,
    ) -> Option<u32> {
        let UnitSectionOffset(start) = header.offset();
        let end = start + header.length_including_self();
        let type_ = header.type_();
        let unit = Arc::new(dwarf.unit(header).ok()?);
        let number = u32::try_from(self.all.len()).ok()?;
        if let gimli::UnitType::Type {
            type_signature,
            type_offset,
        }
        | gimli::UnitType::SplitType {
            type_signature,
            type_offset,
        } = type_
        {
            let place = DieRef {
                unit: number,
                offset: type_offset.0,
            };
            self.signatures.entry(type_signature.0).or_insert(place);
        }
        self.by_place.push((origin, start, number));
        self.all.push(LoadedUnit {
            dwarf: dwarf.clone(),
            unit,
            skeleton: None,
            origin,
            start,
            end,
            index: None,
            is_deep: None,
        });
        Some(number)
    }

    /// Puts the split unit of `other` in place of its skeleton, so that the skeleton's code ranges
    /// lead to it; adds further units (types).
    fn add_split(
        &mut self,
        other: &Arc<Dwarf>,
        dwarf: &Arc<Dwarf>,
        skeleton: &Arc<Unit>,
        number: u32,
        origin: Origin,
    ) {
        let mut headers = other.units();
        while let Ok(Some(header)) = headers.next() {
            let split = matches!(
                header.type_(),
                gimli::UnitType::SplitCompilation(_) | gimli::UnitType::Compilation
            );
            let Some(added) = self.add(other, header, origin) else {
                continue;
            };
            // `addr2line` takes the first, too.
            if !split || self.all[number as usize].skeleton.is_some() {
                continue;
            }
            // The unit, which was added last, takes its skeleton's number.
            let Some(mut unit) = self.all.pop() else {
                continue;
            };
            if let Some(place) = self.by_place.last_mut().filter(|p| p.2 == added) {
                place.2 = number;
            }
            let Ok(mut copy) = other.unit(unit.unit.header) else {
                continue;
            };
            copy.copy_relocated_attributes(skeleton);
            unit.unit = Arc::new(copy);
            unit.skeleton = Some((dwarf.clone(), skeleton.clone()));
            self.all[number as usize] = unit;
        }
        let mut types = other.type_units();
        while let Ok(Some(header)) = types.next() {
            let _ = self.add(other, header, Origin(u32::MAX));
        }
    }

    fn add_ranges(&mut self, dwarf: &Dwarf, unit: &Unit, number: u32) {
        let before = self.all_ranges.len();
        for (begin, end) in ranges_of_unit(dwarf, unit) {
            if begin > 0 {
                self.ranges.push((begin, end, number));
            }
            self.all_ranges.push((begin, end, number, 0));
        }
        if self.all_ranges.len() == before {
            self.without_range.push(number);
        }
    }

    /// The units in which `addr2line` may look for `address`: of one without ranges, the line table
    /// may cover it.
    pub(super) fn that_may_cover(&self, address: u64) -> Vec<u32> {
        let end = self.all_ranges.partition_point(|r| r.0 <= address);
        let before = self.all_ranges[..end].iter().rev();
        let near = before.take_while(|r| address < r.3);
        let covering = near.filter(|r| address < r.1).map(|r| r.2);
        covering.chain(self.without_range.iter().copied()).collect()
    }

    /// Whether a unit's inlined functions are nested too deep; see [`super::nesting`].
    pub(super) fn is_deep(&mut self, number: u32) -> bool {
        let Some(unit) = self.all.get_mut(number as usize) else {
            return false;
        };
        *unit.is_deep.get_or_insert_with(|| is_deep(&unit.unit))
    }

    /// The start of each unit's own part of the table of addresses, ascending.
    pub(super) fn bases(&self) -> Vec<(usize, u32)> {
        let all = (0..).zip(&self.all);
        let mut bases: Vec<(usize, u32)> = all
            // Before DWARF 5 the table had no header; only split units had one.
            .filter(|(_, unit)| unit.unit.addr_base.0 > 0 || unit.skeleton.is_some())
            .map(|(number, unit)| (unit.unit.addr_base.0, number))
            .collect();
        bases.sort_unstable();
        bases
    }

    pub(super) fn at(&self, origin: Origin, offset: usize) -> Option<DieRef> {
        let end = self
            .by_place
            .partition_point(|p| (p.0, p.1) <= (origin, offset));
        let &(found, start, number) = self.by_place.get(end.checked_sub(1)?)?;
        let unit = self.all.get(number as usize)?;
        (found == origin && offset < unit.end && start == unit.start).then_some(DieRef {
            unit: number,
            offset: offset - start,
        })
    }
}
