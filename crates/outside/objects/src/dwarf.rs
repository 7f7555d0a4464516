//! One module's debug information: its sections, its units (split and supplementary ones included)
//! and the references between their entries. Called by [`crate::names`] for frames and by the
//! tables of variables, types and locals. Reports missing parts in `limits`; a broken unit does not
//! fail a whole file.

use crate::debug_file::{self, Found};
use crate::die::UnitIndex;
use crate::image::{Elf, Image, open_regular};
use crate::options::NameOptions;
use crate::split::SplitFiles;
use gimli::{
    AttributeValue, DwarfFileType, EndianSlice, LittleEndian, Section, SectionId, UnitSectionOffset,
};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ReadCache};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use sunder_access::LinkAddress;

/// How debug sections are read; the bytes are leaked, see the crate's header.
pub(crate) type Bytes = EndianSlice<'static, LittleEndian>;
pub(crate) type Dwarf = gimli::Dwarf<Bytes>;
pub(crate) type Unit = gimli::Unit<Bytes>;
pub(crate) type Attribute = AttributeValue<Bytes>;

/// An entry of the debug information: the number of its unit, and its offset there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DieRef {
    pub(crate) unit: u32,
    pub(crate) offset: usize,
}

/// An instruction without a line gets that of one before it, at most this many bytes of code and
/// rows of the line table back. Farther back, it would be the line of something else.
const BORROW_BYTES: u64 = 512;
const BORROW_ROWS: usize = 32;

/// The section that a unit was read from; references by section offset stay within one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Origin(u32);

const MAIN: Origin = Origin(0);
const SUPPLEMENTARY: Origin = Origin(1);

/// A unit and the data that are needed to read it.
#[derive(Clone, Debug)]
pub(crate) struct LoadedUnit {
    pub(crate) dwarf: Arc<Dwarf>,
    pub(crate) unit: Arc<Unit>,
    /// For a split unit, the unit in the main file, which has the line table.
    pub(crate) skeleton: Option<(Arc<Dwarf>, Arc<Unit>)>,
    origin: Origin,
    start: usize,
    end: usize,
    index: Option<Arc<UnitIndex>>,
}

/// The debug information of one module.
pub(crate) struct DebugInfo {
    dwarf: Arc<Dwarf>,
    lines: Option<addr2line::Context<Bytes>>,
    split: SplitFiles,
    units: Option<Units>,
}

struct Units {
    all: Vec<LoadedUnit>,
    /// By section and offset of their first byte.
    by_place: Vec<(Origin, usize, u32)>,
    signatures: HashMap<u64, DieRef>,
    /// Code ranges of the units, by start, and the largest end up to there.
    ranges: Vec<(u64, u64, u32)>,
}

impl DebugInfo {
    /// Loads the debug information of `image`. `None`, with a sentence in `limits`, if there is
    /// none.
    pub(crate) fn load(
        image: &Image,
        options: &NameOptions,
        limits: &mut Vec<String>,
    ) -> Option<Self> {
        let shown = options.unrooted(&image.path);
        let shown = shown.display();
        let path = match debug_file::find(image, options) {
            Found::At(path) => path,
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
        match Self::read(image, &path, options, limits) {
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
        path: &Path,
        options: &NameOptions,
        limits: &mut Vec<String>,
    ) -> Result<Self, Box<dyn std::error::Error>> {
        let cache = ReadCache::new(open_regular(path)?);
        let elf: Elf<'_> = ElfFile64::parse(&cache)?;
        let mut dwarf = load_sections(&elf, false)?;
        match debug_file::supplementary(&elf, path, options) {
            Ok(None) => {}
            Ok(Some(other)) => {
                let cache = ReadCache::new(open_regular(&other)?);
                let elf: Elf<'_> = ElfFile64::parse(&cache)?;
                dwarf.set_sup(load_sections(&elf, false)?);
            }
            Err(name) => limits.push(format!(
                "{}: the supplementary debug file {} was not found, so some of its names and \
                 types are missing.",
                options.unrooted(&image.path).display(),
                name.display()
            )),
        }
        dwarf.populate_abbreviations_cache(gimli::AbbreviationsCacheStrategy::Duplicates);
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
        let mut frames = self.frames_as_told(address, limits);
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
            let before = self.frames_as_told(LinkAddress(row), limits);
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

    fn frames_as_told(&mut self, address: LinkAddress, limits: &mut Vec<String>) -> Vec<RawFrame> {
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
                    .and_then(|f| Some(f.raw_name().ok()?.into_owned())),
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
#[derive(Clone, Debug, Default)]
pub(crate) struct RawFrame {
    pub(crate) function: Option<String>,
    pub(crate) file: Option<String>,
    pub(crate) line: Option<u32>,
}

impl Units {
    fn read(dwarf: &Arc<Dwarf>, split: &mut SplitFiles, limits: &mut Vec<String>) -> Self {
        let mut units = Self {
            all: Vec::new(),
            by_place: Vec::new(),
            signatures: HashMap::new(),
            ranges: Vec::new(),
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
            if !split {
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
        let Ok(mut ranges) = dwarf.unit_ranges(unit) else {
            return;
        };
        while let Ok(Some(range)) = ranges.next() {
            if range.begin > 0 && range.begin < range.end {
                self.ranges.push((range.begin, range.end, number));
            }
        }
    }

    /// The start of each unit's own part of the table of addresses, ascending.
    fn bases(&self) -> Vec<(usize, u32)> {
        let all = (0..).zip(&self.all);
        let mut bases: Vec<(usize, u32)> = all
            // Before DWARF 5 the table had no header; only split units had one.
            .filter(|(_, unit)| unit.unit.addr_base.0 > 0 || unit.skeleton.is_some())
            .map(|(number, unit)| (unit.unit.addr_base.0, number))
            .collect();
        bases.sort_unstable();
        bases
    }

    fn at(&self, origin: Origin, offset: usize) -> Option<DieRef> {
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

pub(crate) fn load_sections(elf: &Elf<'_>, split: bool) -> Result<Dwarf, gimli::Error> {
    let name = |s: SectionId| if split { s.dwo_name() } else { Some(s.name()) };
    let mut dwarf = Dwarf::load(|s| Ok::<_, gimli::Error>(section(elf, name(s))))?;
    if split {
        dwarf.file_type = DwarfFileType::Dwo;
    }
    Ok(dwarf)
}

/// A section's bytes, decompressed, for as long as the tool runs.
pub(crate) fn section(elf: &Elf<'_>, name: Option<&str>) -> Bytes {
    let data = name
        .and_then(|n| elf.section_by_name(n))
        .and_then(|s| s.uncompressed_data().ok())
        .filter(|d| !d.is_empty());
    let leaked: &'static [u8] = match data {
        Some(data) => Box::leak(data.into_owned().into_boxed_slice()),
        None => &[],
    };
    EndianSlice::new(leaked, LittleEndian)
}

/// The text of a string attribute; empty if it is not UTF-8.
pub(crate) fn text_of(bytes: Bytes) -> &'static str {
    std::str::from_utf8(bytes.slice()).unwrap_or("")
}

impl LoadedUnit {
    /// The text of `attribute`.
    pub(crate) fn text(&self, attribute: Attribute) -> Option<&'static str> {
        let text = text_of(self.dwarf.attr_string(&self.unit, attribute).ok()?);
        (!text.is_empty()).then_some(text)
    }

    /// The source file with `number` in the unit's line table.
    pub(crate) fn file(&self, number: u64) -> Option<String> {
        // A split unit's file numbers belong to its own `.debug_line.dwo`
        // where there is one, else to the skeleton's table.
        let own = (&self.dwarf, &self.unit);
        let (dwarf, unit) = match (&self.skeleton, &self.unit.line_program) {
            (Some((dwarf, unit)), None) => (dwarf, unit),
            _ => own,
        };
        let header = unit.line_program.as_ref()?.header();
        let file = header.file(number)?;
        let mut path = PathBuf::new();
        if let Some(dir) = unit.comp_dir {
            path.push(text_of(dir));
        }
        let dir = file
            .directory(header)
            .and_then(|d| dwarf.attr_string(unit, d).ok());
        if let Some(dir) = dir {
            path.push(text_of(dir));
        }
        path.push(text_of(dwarf.attr_string(unit, file.path_name()).ok()?));
        path.to_str().map(str::to_owned)
    }
}
