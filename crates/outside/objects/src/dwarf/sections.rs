//! The sections of debug information in an ELF file.

use super::abbreviations::are_usual;
use crate::bounded::{Budget, KEPT};
use crate::image::Elf;
use gimli::{AttributeValue, DwarfFileType, EndianSlice, LittleEndian, SectionId};
use object::{CompressedData, CompressionFormat, Object, ObjectSection};
use std::borrow::Cow;

/// How debug sections are read; the bytes are leaked, see the crate's header.
pub(crate) type Bytes = EndianSlice<'static, LittleEndian>;
pub(crate) type Dwarf = gimli::Dwarf<Bytes>;
pub(crate) type Unit = gimli::Unit<Bytes>;
pub(crate) type Attribute = AttributeValue<Bytes>;

/// Why sections can't be read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SectionError {
    #[error("{0}")]
    Format(#[from] gimli::Error),
    #[error("its section {0} has {1} MiB, which is too much for what the file takes on its disk")]
    TooLarge(String, u64),
    #[error("debug information of several gigabytes is in memory already")]
    Full,
    #[error("its abbreviations, in .debug_abbrev, are not those of a compiler")]
    Kinds,
}

pub(crate) fn load_sections(elf: &Elf<'_>, split: bool) -> Result<Dwarf, SectionError> {
    let name = |s: SectionId| if split { s.dwo_name() } else { Some(s.name()) };
    let mut dwarf = Dwarf::load(|s| section(elf, name(s)))?;
    if split {
        dwarf.file_type = DwarfFileType::Dwo;
    }
    if !are_usual(&dwarf) {
        return Err(SectionError::Kinds);
    }
    Ok(dwarf)
}

/// A section's bytes, decompressed, for as long as the tool runs; none if there is no such section.
///
/// # Errors
/// If it is larger than what may be read of the file, or than what may be kept of all files.
pub(crate) fn section(elf: &Elf<'_>, name: Option<&str>) -> Result<Bytes, SectionError> {
    section_within(elf, name, &KEPT)
}

fn section_within(elf: &Elf<'_>, name: Option<&str>, kept: &Budget) -> Result<Bytes, SectionError> {
    let none = EndianSlice::new(&[], LittleEndian);
    let Some(section) = name.and_then(|n| elf.section_by_name(n)) else {
        return Ok(none);
    };
    // A section of zero-filled memory has a size and no bytes.
    let in_file = section.file_range().map_or(0, |(_, size)| size);
    let too_large = |size: u64| {
        let name = name.unwrap_or_default().to_owned();
        SectionError::TooLarge(name, size >> 20)
    };
    if !elf.data().has_left(in_file) {
        return Err(too_large(in_file));
    }
    let Ok(packed) = section.compressed_file_range() else {
        return Ok(none);
    };
    let is_packed = packed.format != CompressionFormat::None;
    let size = packed.uncompressed_size;
    if is_packed && (is_bomb(packed.compressed_size, size) || !elf.data().take(size)) {
        return Err(too_large(size));
    }
    if !kept.take(size) {
        return Err(SectionError::Full);
    }
    let bytes = if is_packed {
        let unpacked = section
            .compressed_data()
            .and_then(CompressedData::decompress);
        unpacked.ok().map(Cow::into_owned)
    } else {
        elf.data().own(packed.offset, size)
    };
    let Some(bytes) = bytes.filter(|bytes| !bytes.is_empty()) else {
        kept.give_back(size);
        return Ok(none);
    };
    Ok(EndianSlice::new(
        Box::leak(bytes.into_boxed_slice()),
        LittleEndian,
    ))
}

/// Compilers' and linkers' sections unpack to 2 to 20 times their size. What is read of one takes many times its
/// unpacked size, a line table 24 times at most, so that some kilobytes of a file would take gigabytes.
const MOST_TIMES: u64 = 64;
/// A section that unpacks to no more than this is never too much, in bytes.
const HARMLESS: u64 = 1 << 20;

fn is_bomb(packed: u64, unpacked: u64) -> bool {
    unpacked > HARMLESS && unpacked / MOST_TIMES > packed
}

/// The text of a string attribute; empty if it is not UTF-8.
pub(crate) fn text_of(bytes: Bytes) -> &'static str {
    std::str::from_utf8(bytes.slice()).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounded::FileBytes;
    use object::elf::{ELFCOMPRESS_ZLIB, SHF_COMPRESSED, SHT_PROGBITS, SHT_STRTAB};
    use object::read::elf::ElfFile64;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// The section with debug information in the test's files.
    const NAME: &str = ".debug_str";

    /// A file with the section: its flags, the size that it claims, and its first bytes.
    fn elf_with(flags: u64, claimed: u64, bytes: &[u8]) -> File {
        const NAMES: &[u8] = b"\0.debug_str\0.names\0";
        let mut header = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        header.resize(16, 0);
        // A shared object for x86-64, with three section headers at 64; their names are in the last.
        header.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        header.extend([0; 16]);
        header.extend(64u64.to_le_bytes());
        header.extend([0, 0, 0, 0, 64, 0, 56, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
        header.extend([0; 64]);
        let (names_at, bytes_at) = (0x1000u64, 0x2000u64);
        let sections = [
            (1u32, SHT_PROGBITS.0, flags, bytes_at, claimed),
            (12, SHT_STRTAB.0, 0, names_at, NAMES.len() as u64),
        ];
        for (name, kind, flags, at, size) in sections {
            header.extend(name.to_le_bytes());
            header.extend(kind.to_le_bytes());
            header.extend(flags.to_le_bytes());
            for number in [0, at, size, 0, 1, 0] {
                header.extend(number.to_le_bytes());
            }
        }
        let file = tempfile::tempfile().expect("a file");
        for (at, bytes) in [(0, &*header), (names_at, NAMES), (bytes_at, bytes)] {
            file.write_all_at(bytes, at).expect("written");
        }
        file
    }

    /// A header of a compressed section that claims to unpack to `size` bytes.
    fn packed(size: u64) -> Vec<u8> {
        let kind = u64::from(ELFCOMPRESS_ZLIB.0);
        [kind, size, 1].map(u64::to_le_bytes).concat()
    }

    fn read(file: &File, kept: &Budget) -> Result<usize, SectionError> {
        let bytes = FileBytes::of(file.try_clone().expect("a descriptor"));
        let elf: Elf<'_> = ElfFile64::parse(&bytes).expect("an ELF file");
        section_within(&elf, Some(NAME), kept).map(|b| b.slice().len())
    }

    #[test]
    fn a_section_within_its_file_is_read() {
        let file = elf_with(0, 5, b"text\0");
        let kept = Budget::of(8);
        assert_eq!(read(&file, &kept).expect("small"), 5);
        // It is kept once already.
        assert!(matches!(read(&file, &kept), Err(SectionError::Full)));
    }

    #[test]
    fn a_section_that_is_mostly_a_hole_is_refused() {
        let file = elf_with(0, 2 << 30, b"text\0");
        file.set_len(3 << 30).expect("a sparse file");
        let refused = read(&file, &Budget::of(u64::MAX));
        assert!(matches!(refused, Err(SectionError::TooLarge(name, 2048)) if name == NAME));
    }

    #[test]
    fn a_section_that_claims_to_unpack_to_terabytes_is_refused() {
        let bytes = packed(1 << 42);
        let file = elf_with(SHF_COMPRESSED.0, bytes.len() as u64, &bytes);
        let refused = read(&file, &Budget::of(u64::MAX));
        assert!(matches!(refused, Err(SectionError::TooLarge(..))));
    }

    #[test]
    fn a_section_that_claims_to_unpack_to_far_more_than_compilers_write_is_refused() {
        for (packed, unpacked, refused) in [
            (100, HARMLESS, false),
            (100_000, 6_400_000, false),
            (100_000, 64_000_000, true),
        ] {
            assert_eq!(is_bomb(packed, unpacked), refused, "{packed} {unpacked}");
        }
        let mut bytes = packed(32 << 20);
        bytes.resize(75_000, 1);
        let file = elf_with(SHF_COMPRESSED.0, bytes.len() as u64, &bytes);
        let refused = read(&file, &Budget::of(u64::MAX));
        assert!(matches!(refused, Err(SectionError::TooLarge(_, 32))));
    }

    #[test]
    fn a_damaged_packed_section_takes_nothing_of_what_may_be_kept() {
        let bytes = packed(1000);
        let file = elf_with(SHF_COMPRESSED.0, bytes.len() as u64, &bytes);
        let kept = Budget::of(1000);
        assert_eq!(read(&file, &kept).expect("none"), 0);
        assert!(kept.take(1000));
    }
}
