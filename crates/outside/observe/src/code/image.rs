//! An ELF file as a source of functions: where each begins and ends, by its
//! symbols and, in stripped files, by its unwind tables or the table of Go's runtime.

use super::entries::{self, Text};
use super::segments::{Data, Segment, Segments};
use object::read::elf::{FileHeader, ProgramHeader};
use object::{Object, ObjectSection, ObjectSymbol, ReadCache, ReadRef, elf};
use std::fs::File;
use std::ops::Range;
use std::sync::OnceLock;
use sunder_go::Table;

/// Larger functions are treated like unknown code: it is not worth decoding them as a whole for
/// one instruction.
const LARGEST_FUNCTION: u64 = 1 << 20;

/// How many bytes of code without known bounds are decoded at once.
const UNBOUND_BYTES: u64 = 1024;

/// Code above this size is not searched for jumps between functions.
const LARGEST_TEXT: u64 = 64 << 20;

/// Files with more bytes in memory are not searched for addresses of code.
const LARGEST_DATA: u64 = 256 << 20;

/// Larger tables of symbols or unwind information, in bytes, are taken for missing. Those of
/// Chromium have less than half of it; a sparse file may claim any size.
const LARGEST_TABLE: u64 = 256 << 20;

/// Code of an image, by its offset in the file.
#[derive(Debug)]
pub(super) struct FunctionCode {
    pub file_offset: u64,
    pub bytes: Vec<u8>,
    pub exact_start: bool,
    /// Offsets in `bytes` at which control may enter from other functions.
    pub entries: Vec<u32>,
    pub tables_known: bool,
}

/// An ELF file for x86-64.
#[derive(Debug)]
pub(super) struct Image {
    segments: Segments,
    /// Start and end addresses, ascending, not overlapping.
    functions: Vec<(u64, u64)>,
    /// Targets of jumps from one function into another, ascending. Computed when first needed;
    /// `None` if there is too much code to search.
    cross_jumps: OnceLock<Option<Vec<u64>>>,
    /// Addresses of code that the file's data hold, ascending. Computed when first needed; `None` if
    /// there is too much to search.
    held: OnceLock<Option<Vec<u64>>>,
}

impl Image {
    /// Reads headers, symbols and unwind tables; `None` if it is no ELF file
    /// for x86-64.
    pub(super) fn from_file(file: File) -> Option<Self> {
        let cache = ReadCache::new(file);
        let (segments, functions) = parse(Tables(&cache))?;
        let data = Data::File(cache.into_inner());
        Some(Self::new(Segments::new(data, segments), functions))
    }

    /// The same from bytes.
    pub(super) fn from_memory(bytes: Vec<u8>) -> Option<Self> {
        let (segments, functions) = parse(bytes.as_slice())?;
        Some(Self::new(
            Segments::new(Data::Memory(bytes), segments),
            functions,
        ))
    }

    const fn new(segments: Segments, functions: Vec<(u64, u64)>) -> Self {
        Self {
            segments,
            functions,
            cross_jumps: OnceLock::new(),
            held: OnceLock::new(),
        }
    }

    /// The function that holds the byte at `file_offset`, or at least some
    /// bytes from there on.
    pub(super) fn function_at(&self, file_offset: u64) -> Option<FunctionCode> {
        let segment = self.segments.all().iter().find(|segment| {
            segment.execute
                && file_offset >= segment.file_offset
                && file_offset - segment.file_offset < segment.len
        })?;
        let at = file_offset - segment.file_offset + segment.address;
        let after = self.functions.partition_point(|function| function.0 <= at);
        let bounds = after
            .checked_sub(1)
            .map(|index| self.functions[index])
            .filter(|&(start, end)| {
                at < end
                    && end - start <= LARGEST_FUNCTION
                    && start >= segment.address
                    && end <= segment.address + segment.len
            });
        let cross = self.cross_jumps();
        match (bounds, cross) {
            (Some((start, end)), Some(cross)) => {
                let bytes = self.segments.read(start, end - start)?;
                let from = cross.partition_point(|&target| target < start);
                let to = cross.partition_point(|&target| target < end);
                let mut entries: Vec<u64> = cross[from..to].to_vec();
                let held = || self.held();
                let tables_known =
                    entries::jump_tables(&bytes, start, &self.segments, held, &mut entries);
                Some(FunctionCode {
                    file_offset: start - segment.address + segment.file_offset,
                    bytes,
                    exact_start: true,
                    entries: entries
                        .iter()
                        .map(|&entry| (entry - start) as u32)
                        .collect(),
                    tables_known,
                })
            }
            _ => {
                let next = self.functions.get(after).map_or(u64::MAX, |next| next.0);
                let end = at
                    .saturating_add(UNBOUND_BYTES)
                    .min(segment.address + segment.len)
                    .min(next);
                Some(FunctionCode {
                    file_offset,
                    bytes: self.segments.read(at, end - at)?,
                    exact_start: false,
                    entries: Vec::new(),
                    tables_known: false,
                })
            }
        }
    }

    /// The same by an address of the file.
    pub(super) fn function_of(&self, address: u64) -> Option<FunctionCode> {
        let segment = self.segments.at(address)?;
        self.function_at(address - segment.address + segment.file_offset)
    }

    fn held(&self) -> Option<&[u64]> {
        let found = self.held.get_or_init(|| {
            let lengths = self.segments.all().iter().map(|segment| segment.len);
            if lengths.fold(0, u64::saturating_add) > LARGEST_DATA {
                return None;
            }
            self.segments.code_addresses()
        });
        found.as_deref()
    }

    fn cross_jumps(&self) -> Option<&[u64]> {
        let found = self.cross_jumps.get_or_init(|| {
            let texts = self.segments.all().iter().filter(|segment| segment.execute);
            let lengths = texts.clone().map(|text| text.len);
            if lengths.fold(0, u64::saturating_add) > LARGEST_TEXT {
                return None;
            }
            let mut all = Vec::new();
            for segment in texts {
                let bytes = self.segments.read(segment.address, segment.len)?;
                let text = Text {
                    bytes: &bytes,
                    address: segment.address,
                };
                entries::cross_jumps(&text, &self.functions, &mut all);
            }
            all.sort_unstable();
            all.dedup();
            Some(all)
        });
        found.as_deref()
    }
}

/// A file of which no piece above [`LARGEST_TABLE`] is read.
#[derive(Clone, Copy)]
struct Tables<'a>(&'a ReadCache<File>);

impl<'a> ReadRef<'a> for Tables<'a> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        if size > LARGEST_TABLE {
            return Err(());
        }
        self.0.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

type Parts = (Vec<Segment>, Vec<(u64, u64)>);

fn parse<'data, R: ReadRef<'data>>(data: R) -> Option<Parts> {
    let header = elf::FileHeader64::<object::LittleEndian>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_machine(endian) != elf::EM_X86_64 {
        return None;
    }
    let segments: Vec<Segment> = header
        .program_headers(endian, data)
        .ok()?
        .iter()
        .filter(|program| program.p_type(endian) == elf::PT_LOAD)
        .map(|program| Segment {
            address: program.p_vaddr(endian),
            file_offset: program.p_offset(endian),
            len: program.p_filesz(endian),
            execute: program.p_flags(endian).contains(elf::PF_X),
        })
        .filter(|segment| {
            segment.address.checked_add(segment.len).is_some()
                && segment.file_offset.checked_add(segment.len).is_some()
        })
        .collect();
    // A file whose sections are damaged or removed still has its code.
    let functions = match object::File::parse(data) {
        Ok(file) => functions(&file),
        Err(_) => Vec::new(),
    };
    Some((segments, functions))
}

pub(super) fn functions<'data, R: ReadRef<'data>>(
    file: &object::File<'data, R>,
) -> Vec<(u64, u64)> {
    let mut found: Vec<(u64, u64)> = file
        .symbols()
        .chain(file.dynamic_symbols())
        .filter(|symbol| symbol.is_definition() && symbol.kind() == object::SymbolKind::Text)
        .map(|symbol| (symbol.address(), symbol.size()))
        .collect();
    unwind_ranges(file, &mut found);
    let mut bounds: Vec<(u64, u64)> = found
        .into_iter()
        .filter_map(|(start, len)| Some((start, start.checked_add(len)?)))
        .collect();
    if file.symbols().next().is_none() {
        bounds.extend(functions_of_go(file));
    }
    // Of several functions with one start, the longest comes first and is kept.
    bounds.sort_unstable_by_key(|&(start, end)| (start, std::cmp::Reverse(end)));
    bounds.dedup_by_key(|bound| bound.0);
    for index in 1..bounds.len() {
        bounds[index - 1].1 = bounds[index - 1].1.min(bounds[index].0);
    }
    bounds
}

/// The functions in the table of Go's runtime.
fn functions_of_go<'data, R: ReadRef<'data>>(file: &object::File<'data, R>) -> Vec<(u64, u64)> {
    let section = |name| {
        let section = file.section_by_name(name)?;
        Some((section.address(), section.data().ok()?))
    };
    let table = sunder_go::SECTIONS.into_iter().find_map(section);
    let parts = table.zip(section(".text"));
    let table = parts.and_then(|((_, table), (text, code))| Table::read(table, text, code));
    table.iter().flat_map(Table::bounds).collect()
}

/// The functions that `.eh_frame` describes: all that C, C++ and Rust compilers
/// make, also in stripped files.
fn unwind_ranges<'data, R: ReadRef<'data>>(
    file: &object::File<'data, R>,
    found: &mut Vec<(u64, u64)>,
) {
    use gimli::UnwindSection;
    let Some(section) = file.section_by_name(".eh_frame") else {
        return;
    };
    let Ok(data) = section.data() else { return };
    let frames = gimli::EhFrame::new(data, gimli::LittleEndian);
    let mut bases = gimli::BaseAddresses::default().set_eh_frame(section.address());
    if let Some(text) = file.section_by_name(".text") {
        bases = bases.set_text(text.address());
    }
    let mut common = std::collections::HashMap::new();
    let mut entries = frames.entries(&bases);
    // Damaged entries end the list; the ones before them are good.
    while let Ok(Some(entry)) = entries.next() {
        let gimli::CieOrFde::Fde(partial) = entry else {
            continue;
        };
        let parsed = partial.parse(|section, bases, offset| {
            if let Some(cie) = common.get(&offset) {
                return Ok(gimli::CommonInformationEntry::clone(cie));
            }
            let cie = section.cie_from_offset(bases, offset)?;
            common.insert(offset, cie.clone());
            Ok(cie)
        });
        if let Ok(function) = parsed {
            found.push((function.initial_address(), function.len()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_that_are_larger_than_any_are_not_read() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(2 << 30).expect("a sparse file");
        let cache = ReadCache::new(file);
        let tables = Tables(&cache);
        assert_eq!(tables.read_bytes_at(64, 3), Ok(&[0; 3][..]));
        assert_eq!(tables.read_bytes_at(64, LARGEST_TABLE + 1), Err(()));
        assert_eq!(tables.len(), Ok(2 << 30));
    }
}
