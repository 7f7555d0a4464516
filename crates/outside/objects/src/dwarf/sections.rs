//! The sections of debug information in an ELF file.

use crate::image::Elf;
use gimli::{AttributeValue, DwarfFileType, EndianSlice, LittleEndian, SectionId};
use object::{Object, ObjectSection};

/// How debug sections are read; the bytes are leaked, see the crate's header.
pub(crate) type Bytes = EndianSlice<'static, LittleEndian>;
pub(crate) type Dwarf = gimli::Dwarf<Bytes>;
pub(crate) type Unit = gimli::Unit<Bytes>;
pub(crate) type Attribute = AttributeValue<Bytes>;

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
