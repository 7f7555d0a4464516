//! One module's debug information: its sections, its units (split and supplementary ones included)
//! and the references between their entries. Called by [`crate::names`] for frames and by the
//! tables of variables, types and locals. Reports missing parts in `limits`; a broken unit does not
//! fail a whole file.

mod abbreviations;
mod index;
mod inlined;
#[cfg(test)]
pub(crate) mod made;
mod nesting;
mod ranges;
mod scopes;
mod sections;
mod split;
mod unit;
mod units;

pub(crate) use index::{StaticLocation, UnitIndex};
pub(crate) use ranges::ranges_of;
pub(crate) use sections::{Attribute, Bytes, load_sections, text_of};
pub(crate) use split::SplitFiles;
pub use unit::Language;
pub(crate) use unit::{DieRef, LoadedEntry, LoadedUnit};

use crate::bounded::FileBytes;
use crate::debug_file::{self, Found, Opened};
use crate::fold::shortened;
use crate::image::{Elf, Image};
use crate::options::NameOptions;
use gimli::{AttributeValue, Section};
use object::read::elf::ElfFile64;
use sections::Dwarf;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use sunder_access::{LinkAddress, is_own_file};
use unit::{MAIN, SUPPLEMENTARY};
use units::Units;

/// An instruction without a line gets that of one before it, at most this many bytes of code and
/// rows of the line table back. Farther back, it would be the line of something else.
const BORROW_BYTES: u64 = 512;
const BORROW_ROWS: usize = 32;

/// The debug information of one module.
pub(crate) struct DebugInfo {
    dwarf: Arc<Dwarf>,
    lines: Option<addr2line::Context<Bytes>>,
    split: SplitFiles,
    units: Option<Units>,
}

impl DebugInfo {
    /// Loads the debug information of `image`. `None`, with a sentence in `limits`, if there is
    /// none.
    pub(crate) fn load(
        image: &Image,
        options: &NameOptions,
        limits: &mut Vec<String>,
    ) -> Option<Self> {
        let shown = image.path.display();
        // Nobody needs the names of our own libraries in the program.
        if image.path.to_str().is_some_and(is_own_file) {
            return None;
        }
        let found = match debug_file::find(image, options) {
            Found::At(found) => Ok(found),
            Found::Within => image.file().map(|file| Opened {
                path: image.path.clone(),
                file,
            }),
            Found::LinkBroken(name) => {
                limits.push(format!(
                    "{shown}: its separate debug file {} was not found or does not match, so \
                     only symbols name its code and data.",
                    name.display()
                ));
                return None;
            }
            Found::None => {
                limits.push(if image.symbols.full {
                    format!(
                        "{shown} has no debug information: only symbols and offsets name its code \
                         and data. Compiling with -g adds lines, fields and types."
                    )
                } else if image.is_go && image.symbols.packed {
                    format!(
                        "{shown} is stripped but for the names of its functions. A build without \
                         `-ldflags=-w` has lines, variables, fields and types."
                    )
                } else if image.symbols.packed {
                    format!(
                        "{shown} is stripped but for the names of its functions. An unstripped \
                         build with -g adds lines, variables, fields and types."
                    )
                } else {
                    format!(
                        "{shown} is stripped: little more than exported symbols names its code \
                         and data. An unstripped build with -g adds functions, lines, variables, \
                         fields and types."
                    )
                });
                return None;
            }
        };
        let path = found
            .as_ref()
            .map_or(&image.path, |found| &found.path)
            .clone();
        let read = found
            .map_err(Into::into)
            .and_then(|found| Self::read(image, found, options, limits));
        match read {
            Ok(info) => Some(info),
            Err(error) => {
                limits.push(format!(
                    "{shown}: its debug information in {} cannot be read ({error}), so only \
                     symbols name its code and data.",
                    path.display()
                ));
                None
            }
        }
    }

    fn read(
        image: &Image,
        found: Opened,
        options: &NameOptions,
        limits: &mut Vec<String>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let bytes = FileBytes::of(found.file);
        let elf: Elf<'_> = ElfFile64::parse(&bytes)?;
        let mut dwarf = load_sections(&elf, false)?;
        match debug_file::supplementary(&elf, &found.path, options) {
            Ok(None) => {}
            Ok(Some(other)) => {
                let bytes = FileBytes::of(other);
                let elf: Elf<'_> = ElfFile64::parse(&bytes)?;
                dwarf.set_sup(load_sections(&elf, false)?);
            }
            Err(name) => limits.push(format!(
                "{}: the supplementary debug file {} was not found, so some of its names and \
                 types are missing.",
                image.path.display(),
                name.display()
            )),
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
        // A second list of the units' ranges: `Units` must know in which `addr2line` looks.
        dwarf.debug_aranges = gimli::DebugAranges::new(&[], gimli::LittleEndian);
        let dwarf = Arc::new(dwarf);
        Ok(Self {
            lines: addr2line::Context::from_arc_dwarf(dwarf.clone()).ok(),
            dwarf,
            split: SplitFiles::new(image, options),
            units: None,
        })
    }

    /// The functions at `address`, innermost first: name as in the debug information (the linkage
    /// name if there is one), file, line. An instruction without a line (line 0) gets that of the
    /// instruction before it in the same function.
    pub(crate) fn frames(
        &mut self,
        address: LinkAddress,
        limits: &mut Vec<String>,
    ) -> Vec<RawFrame> {
        let mut frames = self.recorded_frames(address, limits);
        if frames.iter().any(|f| f.line.is_none() && f.file.is_some()) {
            self.borrow_lines(address, &mut frames, limits);
        }
        frames
    }

    /// Sets the missing lines of `frames`, the functions at `address`.
    fn borrow_lines(
        &mut self,
        address: LinkAddress,
        frames: &mut [RawFrame],
        limits: &mut Vec<String>,
    ) {
        let low = address.0.saturating_sub(BORROW_BYTES);
        let rows: Vec<u64> = match &self.lines {
            Some(lines) => match lines.find_location_range(low, address.0) {
                Ok(rows) => rows.map(|(start, ..)| start).collect(),
                Err(_) => return,
            },
            None => return,
        };
        let function = |frames: &[RawFrame]| frames.last().and_then(|f| f.function.clone());
        for &row in rows.iter().rev().take(BORROW_ROWS) {
            let before = self.recorded_frames(LinkAddress(row), limits);
            if function(&before) != function(frames) {
                return;
            }
            for frame in frames.iter_mut().filter(|f| f.line.is_none()) {
                let same = before
                    .iter()
                    .find(|b| b.function == frame.function && b.line.is_some());
                if let Some(same) = same {
                    frame.file.clone_from(&same.file);
                    frame.line = same.line;
                }
            }
            if frames.iter().all(|f| f.line.is_some()) {
                return;
            }
        }
    }

    fn recorded_frames(&mut self, address: LinkAddress, limits: &mut Vec<String>) -> Vec<RawFrame> {
        if self.is_deep(address, limits) {
            return Vec::new();
        }
        let Some(lines) = &self.lines else {
            return Vec::new();
        };
        let mut lookup = lines.find_frames(address.0);
        let mut frames = loop {
            match lookup {
                addr2line::LookupResult::Output(Ok(frames)) => break frames,
                addr2line::LookupResult::Output(Err(_)) => return Vec::new(),
                addr2line::LookupResult::Load { load, continuation } => {
                    use addr2line::LookupContinuation;
                    let name = load.path.map(text_of);
                    let found = self.split.load(
                        load.dwo_id,
                        load.comp_dir.map(text_of),
                        name,
                        &load.parent,
                        limits,
                    );
                    lookup = continuation.resume(found);
                }
            }
        };
        let mut all = Vec::new();
        while let Ok(Some(frame)) = frames.next() {
            all.push(RawFrame {
                function: frame
                    .function
                    .and_then(|f| Some(shortened(&f.raw_name().ok()?).to_owned())),
                file: frame
                    .location
                    .as_ref()
                    .and_then(|l| l.file)
                    .map(str::to_owned),
                line: frame
                    .location
                    .as_ref()
                    .and_then(|l| l.line)
                    .filter(|&l| l > 0),
            });
        }
        all
    }

    /// Whether the stack may not suffice for `addr2line` to read the functions at `address`.
    fn is_deep(&mut self, address: LinkAddress, limits: &mut Vec<String>) -> bool {
        let units = self.units(limits);
        let mut at = units.that_may_cover(address.0).into_iter();
        // `addr2line` adds 1 to the address.
        address.0 == u64::MAX || at.any(|unit| units.is_deep(unit))
    }

    /// Reads the headers of all units, once.
    fn units(&mut self, limits: &mut Vec<String>) -> &mut Units {
        self.units
            .get_or_insert_with(|| Units::read(&self.dwarf, &mut self.split, limits))
    }

    /// Number of units.
    pub(crate) fn unit_count(&mut self, limits: &mut Vec<String>) -> u32 {
        self.units(limits).all.len() as u32
    }

    /// Number of units; 0 before they are first needed.
    pub(crate) fn loaded_units(&self) -> u32 {
        self.units.as_ref().map_or(0, |u| u.all.len() as u32)
    }

    /// A unit by its number.
    pub(crate) fn unit(&self, number: u32) -> Option<&LoadedUnit> {
        self.units.as_ref()?.all.get(number as usize)
    }

    /// The table of a unit's named entries, built at the first call.
    pub(crate) fn index(&mut self, number: u32) -> Option<Arc<UnitIndex>> {
        let unit = self.units.as_mut()?.all.get_mut(number as usize)?;
        if unit.index.is_none() {
            unit.index = Some(Arc::new(UnitIndex::build(&unit.dwarf, &unit.unit)));
        }
        unit.index.clone()
    }

    /// Numbers in the debug information that may be the address of a variable in `span`, by
    /// address, each with the unit that it was found in. All addresses at the start of a location
    /// are among them; other numbers may be, too.
    pub(crate) fn address_like(
        &mut self,
        span: (u64, u64),
        limits: &mut Vec<String>,
    ) -> Vec<(u64, u32)> {
        let dwarf = Arc::clone(&self.dwarf);
        let units = self.units(limits);
        let within = |bytes: &[u8]| {
            let address = u64::from_le_bytes(bytes.try_into().ok()?);
            (span.0..span.1).contains(&address).then_some(address)
        };
        let info = dwarf.debug_info.reader().slice();
        let mut found: Vec<(u64, u32)> = info
            .windows(9)
            .enumerate()
            .filter(|(_, bytes)| bytes[0] == gimli::constants::DW_OP_addr.0)
            .filter_map(|(at, bytes)| {
                let address = within(&bytes[1..])?;
                Some((address, units.at(MAIN, at)?.unit))
            })
            .collect();
        // The other expressions name an index in their unit's table of addresses.
        let table = dwarf.debug_addr.reader().slice();
        let bases = units.bases();
        for (n, bytes) in table.chunks_exact(8).enumerate() {
            let Some(address) = within(bytes) else {
                continue;
            };
            let end = bases.partition_point(|base| base.0 <= 8 * n);
            let base = end.checked_sub(1).map(|last| bases[last].0);
            let of_base = bases[..end].iter().rev();
            let of_base = of_base.take_while(|b| Some(b.0) == base);
            found.extend(of_base.map(|b| (address, b.1)));
        }
        found.sort_unstable();
        found.dedup();
        found
    }

    /// The units whose code covers `address`, the most likely first.
    pub(crate) fn units_at(&mut self, address: LinkAddress, limits: &mut Vec<String>) -> Vec<u32> {
        let units = self.units(limits);
        let end = units.ranges.partition_point(|r| r.0 <= address.0);
        // Ranges of different units do not nest. Looking back a little finds those that overlap
        // because of broken tables.
        let near = &units.ranges[end.saturating_sub(4)..end];
        let mut found: Vec<u32> = near
            .iter()
            .rev()
            .filter(|r| address.0 < r.1)
            .map(|r| r.2)
            .collect();
        found.dedup();
        found
    }

    /// The entry that `value`, a reference in unit `from`, leads to.
    pub(crate) fn resolve(&self, from: u32, value: &Attribute) -> Option<DieRef> {
        let units = self.units.as_ref()?;
        let origin = units.all.get(from as usize)?.origin;
        match *value {
            AttributeValue::UnitRef(offset) => Some(DieRef {
                unit: from,
                offset: offset.0,
            }),
            AttributeValue::DebugInfoRef(offset) => units.at(origin, offset.0),
            AttributeValue::DebugInfoRefSup(offset) => units.at(SUPPLEMENTARY, offset.0),
            AttributeValue::DebugTypesRef(signature) => units.signatures.get(&signature.0).copied(),
            _ => None,
        }
    }
}

/// A function at an address, before its name is made readable.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RawFrame {
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}
