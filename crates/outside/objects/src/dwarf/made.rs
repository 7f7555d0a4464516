//! Debug information of bytes that a test has made.

use gimli::{Dwarf, EndianSlice, LittleEndian, SectionId};

/// What these two sections hold, for as long as the test runs: the units, and the kinds of entries.
pub(crate) fn dwarf_of(info: Vec<u8>, kinds: Vec<u8>) -> Dwarf<EndianSlice<'static, LittleEndian>> {
    let (info, kinds): (&'static [u8], &'static [u8]) = (info.leak(), kinds.leak());
    let load = |section| -> Result<_, gimli::Error> {
        let bytes = match section {
            SectionId::DebugInfo => info,
            SectionId::DebugAbbrev => kinds,
            _ => &[],
        };
        Ok(EndianSlice::new(bytes, LittleEndian))
    };
    Dwarf::load(load).expect("sections")
}

/// The section of units with one unit of version 4, with addresses of 8 bytes, that has these entries.
pub(crate) fn one_unit(entries: &[u8]) -> Vec<u8> {
    let mut info = Vec::new();
    // The length after this field.
    info.extend((entries.len() as u32 + 7).to_le_bytes());
    info.extend([4, 0, 0, 0, 0, 0, 8]);
    info.extend(entries);
    info
}
