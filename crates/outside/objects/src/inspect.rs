//! Facts in a program's file, before it runs: for `sunder doctor` and for the sentences that
//! explain why something has no name.

use crate::bounded::FileBytes;
use crate::debug_file::{self, Found};
use crate::dwarf::{SplitFiles, load_sections, text_of};
use crate::files::{Files as _, OwnFiles};
use crate::image::{Elf, Image};
use crate::options::NameOptions;
use object::elf::{FileHeader64, NoteType, PT_INTERP, ProgramHeader64};
use object::read::elf::{ElfFile64, FileHeader, ProgramHeader};
use object::{Endianness, Object, ObjectSection, ObjectSymbol};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A function that only the thread sanitizer's runtime has: what instrumented code calls, `sunder cc` has too.
const THREAD_SANITIZER: &[u8] = b"__tsan_create_fiber";

/// Facts in a program's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProgramFacts {
    /// The dynamic loader that runs first, which can preload a library; `None` for a statically
    /// linked program.
    pub loader: Option<String>,
    /// The libraries that it names as needed.
    pub needed: Vec<String>,
    /// Whether the thread sanitizer's runtime is in it, which Clang links so.
    pub has_thread_sanitizer: bool,
    /// Whether it has a symbol table beside the dynamic one.
    pub symbols: bool,
    /// Its build id in hex, if it has one.
    pub build_id: Option<String>,
}

/// Reads the facts of the ELF file at `path`; `None` if it can't be read or is no 64-bit ELF file
/// for x86-64. The whole file is read, so it must be one that the user names.
pub fn inspect(path: &Path) -> Option<ProgramFacts> {
    let bytes = FileBytes::of(OwnFiles::default().open(path).ok()?);
    let elf: Elf<'_> = ElfFile64::parse(&bytes).ok()?;
    let endian = elf.endian();
    let has = |name: &str| elf.section_by_name(name).is_some_and(|s| s.size() > 0);
    Some(ProgramFacts {
        loader: elf.elf_program_headers().iter().find_map(|h| {
            let name = h.interpreter(endian, &bytes).ok()??;
            Some(String::from_utf8_lossy(name).into_owned())
        }),
        needed: needed(&elf),
        has_thread_sanitizer: elf
            .dynamic_symbols()
            .any(|symbol| symbol.is_definition() && symbol.name_bytes() == Ok(THREAD_SANITIZER)),
        symbols: has(".symtab"),
        build_id: hex_build_id(&elf),
    })
}

/// What a program's file says about its build.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BuildFacts {
    /// The build id in hex.
    pub build_id: Option<String>,
    /// The version of the package that the file belongs to, which its makers' linker wrote there.
    pub version: Option<String>,
}

/// What a program's open file says about its build; nothing if it is no 64-bit ELF file. The file may
/// be any that a program has made.
pub fn build_facts(file: File) -> BuildFacts {
    let bytes = FileBytes::of(file);
    let elf: Option<Elf<'_>> = ElfFile64::parse(&bytes).ok();
    BuildFacts {
        build_id: elf.as_ref().and_then(hex_build_id),
        version: elf.as_ref().and_then(|elf| package_version(elf, &bytes)),
    }
}

/// The version in the note of a package, as `ld --package-metadata` writes it: JSON with type, name and
/// version (UAPI Group Specifications, "Package Metadata for Executable Files").
fn package_version(elf: &Elf<'_>, bytes: &FileBytes) -> Option<String> {
    const PACKAGE: NoteType = NoteType(0xcafe_1a7e);
    /// Longer ones are not looked at.
    const LONGEST: usize = 64 << 10;
    let endian = elf.endian();
    let headers = elf.elf_program_headers().iter();
    let mut notes = headers.filter_map(|header| header.notes(endian, bytes).ok()?);
    let text = notes.find_map(|mut notes| {
        while let Ok(Some(note)) = notes.next() {
            if note.name() == b"FDO" && note.n_type(endian) == PACKAGE {
                return Some(note.desc());
            }
        }
        None
    })?;
    let text = text.split(|&byte| byte == 0).next()?;
    let text = text.get(..text.len().min(LONGEST))?;
    let metadata: serde_json::Value = serde_json::from_slice(text).ok()?;
    Some(metadata.get("version")?.as_str()?.to_owned())
}

fn hex_build_id(elf: &Elf<'_>) -> Option<String> {
    let id = elf.build_id().ok().flatten()?;
    // Hashes have 20 bytes at most; the linker lets anybody write more.
    let bytes = id.iter().take(64);
    Some(bytes.map(|byte| format!("{byte:02x}")).collect())
}

/// Whether a dynamic loader runs before the program in an open file; `None` if it is no 64-bit ELF
/// file. Only its headers are read, so the file may be any that a program has made.
pub fn has_dynamic_loader(file: &File) -> Option<bool> {
    /// More than the kernel accepts, whose limit is one page of them and more (`load_elf_phdrs`).
    const MOST_HEADERS: usize = 65536 / size_of::<ProgramHeader64<Endianness>>();
    let mut head = [0; size_of::<FileHeader64<Endianness>>()];
    file.read_exact_at(&mut head, 0).ok()?;
    let head = FileHeader64::<Endianness>::parse(&head[..]).ok()?;
    let endian = head.endian().ok()?;
    let count = usize::from(head.e_phnum(endian)).min(MOST_HEADERS);
    let mut bytes = vec![0; count * size_of::<ProgramHeader64<Endianness>>()];
    file.read_exact_at(&mut bytes, head.e_phoff(endian)).ok()?;
    let (headers, _) =
        object::slice_from_bytes::<ProgramHeader64<Endianness>>(&bytes, count).ok()?;
    Some(headers.iter().any(|h| h.p_type(endian) == PT_INTERP))
}

/// The location of a program's debug information.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DebugPlace {
    /// In the program's own file.
    Within,
    /// In this file, beside it or in the system's folders.
    Separate(PathBuf),
    /// In a file of this name, which is missing or belongs to another program.
    Missing(PathBuf),
    /// In `.dwo` or `.dwp` files, which exist.
    Split,
    /// In `.dwo` or `.dwp` files, of which this one is missing.
    SplitMissing(PathBuf),
    /// The program was compiled without it, or stripped without a link to it.
    None,
}

/// The location of the debug information of the ELF file at `path`; `None` if the file can't be
/// read. Not for frequent calls: what is read stays in memory.
pub fn debug_place(path: &Path) -> Option<DebugPlace> {
    let options = NameOptions::default();
    let image = Image::read(path, OwnFiles::default().open(path).ok()?).ok()?;
    let (place, file) = match debug_file::find(&image, &options) {
        Found::Within => (DebugPlace::Within, image.file().ok()?),
        Found::At(found) => (DebugPlace::Separate(found.path), found.file),
        Found::LinkBroken(name) => return Some(DebugPlace::Missing(name)),
        Found::None => return Some(DebugPlace::None),
    };
    Some(split_place(file, &mut SplitFiles::new(&image, &options)).unwrap_or(place))
}

/// Whether `file` has skeletons of units in `.dwo` or `.dwp` files, and whether these files exist.
fn split_place(file: File, files: &mut SplitFiles) -> Option<DebugPlace> {
    let bytes = FileBytes::of(file);
    let elf: Elf<'_> = ElfFile64::parse(&bytes).ok()?;
    let dwarf = Arc::new(load_sections(&elf, false).ok()?);
    let mut headers = dwarf.units();
    let mut place = None;
    while let Ok(Some(header)) = headers.next() {
        let Ok(unit) = dwarf.unit(header) else {
            continue;
        };
        let (Some(id), Ok(Some(name))) = (unit.dwo_id, unit.dwo_name()) else {
            continue;
        };
        let name = dwarf.attr_string(&unit, name).ok().map(text_of);
        let folder = unit.comp_dir.map(text_of);
        if files
            .load(id, folder, name, &dwarf, &mut Vec::new())
            .is_none()
        {
            return Some(DebugPlace::SplitMissing(name.unwrap_or_default().into()));
        }
        place = Some(DebugPlace::Split);
    }
    place
}

/// The `DT_NEEDED` entries of the dynamic section.
fn needed(elf: &Elf<'_>) -> Vec<String> {
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
    use std::process::Command;

    #[test]
    fn a_test_program_is_dynamic_with_symbols_and_debug_information() {
        let own = std::env::current_exe().expect("known");
        let facts = inspect(&own).expect("this is an ELF file");
        assert!(facts.loader.is_some() && facts.symbols);
        let open = File::open(&own).expect("there");
        assert_eq!(has_dynamic_loader(&open), Some(true));
        assert_eq!(debug_place(&own), Some(DebugPlace::Within));
    }

    /// As GNU ld and others write it.
    #[test]
    fn the_version_of_a_package_is_in_a_note() {
        let folder = tempfile::tempdir().expect("a folder");
        let linked = |metadata: &str, name: &str| {
            let program = folder.path().join(name);
            let mut gcc = Command::new("gcc");
            gcc.args(["-shared", "-xc", "/dev/null", "-o"])
                .arg(&program);
            gcc.args(["-Xlinker", &format!("--package-metadata={metadata}")]);
            let built = gcc.output().ok().filter(|built| built.status.success());
            if built.is_none() {
                println!("SKIP: no linker here writes notes of packages");
            }
            built.map(|_| build_facts(File::open(program).expect("built")).version)
        };
        let told = r#"{"type":"deb","name":"shop","version":"1:2.3-4","architecture":"amd64"}"#;
        let Some(version) = linked(told, "whole") else {
            return;
        };
        assert_eq!(version.as_deref(), Some("1:2.3-4"));
        for other in [r#"{"version":7}"#, r#"["version"]"#, r#"{"name":"shop"}"#] {
            assert_eq!(linked(other, "other"), Some(None), "{other}");
        }
        let own = File::open(std::env::current_exe().expect("known")).expect("there");
        assert_eq!(build_facts(own).version, None);
    }

    #[test]
    fn other_files_than_elf_have_no_facts() {
        assert_eq!(inspect(Path::new("/etc/passwd")), None);
        assert_eq!(debug_place(Path::new("/etc/passwd")), None);
        assert_eq!(inspect(Path::new("/no/such/file")), None);
        assert_eq!(inspect(Path::new("/")), None);
        let device = File::open("/dev/zero").expect("every machine has it");
        assert_eq!(has_dynamic_loader(&device), None);
        let text = File::open("/etc/passwd").expect("every machine has it");
        assert_eq!(build_facts(text), BuildFacts::default());
    }

    #[test]
    fn of_a_file_that_states_absurd_numbers_only_headers_are_read() {
        let file = tempfile::tempfile().expect("a file");
        let own = File::open(std::env::current_exe().expect("known")).expect("there");
        let mut head = [0; 64];
        own.read_exact_at(&mut head, 0).expect("an ELF file");
        // `e_phnum`, in a file of 1 TiB that takes no room.
        head[56..58].fill(0xff);
        file.write_all_at(&head, 0).expect("written");
        file.set_len(1 << 40).expect("it has holes");
        assert_eq!(has_dynamic_loader(&file), Some(false));
    }
}
