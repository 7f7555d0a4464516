//! What a program's file says of itself before it runs: for `sunder doctor` and
//! for the sentences that explain why something has no name.

use object::elf::PT_INTERP;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{Endianness, Object, ObjectSection};
use std::path::Path;

/// What can be told from a program's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFacts {
    /// Whether a dynamic loader runs first, which can preload a library.
    pub dynamic: bool,
    /// The libraries that it names as needed.
    pub needed: Vec<String>,
    /// Whether it has a symbol table beside the dynamic one.
    pub symbols: bool,
    /// Whether it holds debug information itself.
    pub debug_information: bool,
    /// Whether its debug information was split into `.dwo` or `.dwp` files.
    pub split_debug_information: bool,
    /// Its build id in hex, if it has one.
    pub build_id: Option<String>,
    /// The file that `.gnu_debuglink` names.
    pub debug_link: Option<String>,
}

/// Reads the facts of the ELF file at `path`; `None` if it can't be read or is
/// no 64-bit ELF file of this machine.
pub fn inspect(path: &Path) -> Option<ProgramFacts> {
    let bytes = std::fs::read(path).ok()?;
    let elf = ElfFile64::<Endianness>::parse(&*bytes).ok()?;
    let endian = elf.endian();
    let has = |name: &str| elf.section_by_name(name).is_some_and(|s| s.size() > 0);
    Some(ProgramFacts {
        dynamic: elf
            .elf_program_headers()
            .iter()
            .any(|h| h.p_type(endian) == PT_INTERP),
        needed: needed(&elf),
        symbols: has(".symtab"),
        debug_information: has(".debug_info"),
        split_debug_information: has(".debug_addr") && has(".debug_str_offsets"),
        build_id: elf
            .build_id()
            .ok()
            .flatten()
            .map(|id| id.iter().map(|byte| format!("{byte:02x}")).collect()),
        debug_link: elf
            .gnu_debuglink()
            .ok()
            .flatten()
            .map(|(name, _)| String::from_utf8_lossy(name).into_owned()),
    })
}

/// The `DT_NEEDED` entries of the dynamic section.
fn needed(elf: &ElfFile64<'_>) -> Vec<String> {
    let endian = elf.endian();
    let Ok(sections) = elf.elf_section_table().dynamic(endian, elf.data()) else {
        return Vec::new();
    };
    let Some((entries, strings)) = sections else {
        return Vec::new();
    };
    let Ok(strings) = elf.elf_section_table().strings(endian, elf.data(), strings) else {
        return Vec::new();
    };
    entries
        .iter()
        .filter(|entry| entry.d_tag.get(endian) == object::elf::DT_NEEDED)
        .filter_map(|entry| {
            let name = strings.get(entry.d_val.get(endian).try_into().ok()?).ok()?;
            Some(String::from_utf8_lossy(name).into_owned())
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_program_is_dynamic_with_symbols_and_debug_information() {
        let own = std::env::current_exe().expect("known");
        let facts = inspect(&own).expect("this is an ELF file");
        assert!(facts.dynamic && facts.symbols && facts.debug_information);
    }

    #[test]
    fn what_is_no_elf_file_has_no_facts() {
        assert_eq!(inspect(Path::new("/etc/passwd")), None);
        assert_eq!(inspect(Path::new("/no/such/file")), None);
        assert_eq!(inspect(Path::new("/")), None);
    }
}
