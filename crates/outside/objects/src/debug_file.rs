//! Finding separate debug files: by build-id, by `.gnu_debuglink`, and the
//! supplementary file of `dwz`. Called by [`crate::dwarf`]; the search order is
//! gdb's ("Debugging Information in Separate Files").

use crate::bounded::{CHECKED, FileBytes, allowance};
use crate::files::{Files as _, OwnFiles};
use crate::image::{Elf, Image, has_dwarf};
use crate::options::NameOptions;
use object::Object;
use object::read::elf::ElfFile64;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

/// The result of the search for a module's debug information.
#[derive(Debug)]
pub(crate) enum Found {
    /// In the module's own file.
    Within,
    /// In this other file.
    At(Opened),
    /// A debug link names a file that is missing or does not match.
    LinkBroken(PathBuf),
    /// Neither debug information nor a link to it.
    None,
}

/// A file with debug information.
#[derive(Debug)]
pub(crate) struct Opened {
    /// Its path in the target's file system, or in ours if it was fetched by debuginfod.
    pub(crate) path: PathBuf,
    pub(crate) file: File,
}

impl Opened {
    fn of_target(path: PathBuf, options: &NameOptions) -> Option<Self> {
        let file = options.files.open(&path).ok()?;
        Some(Self { path, file })
    }

    fn fetched(path: PathBuf) -> Option<Self> {
        let file = OwnFiles::default().open(&path).ok()?;
        Some(Self { path, file })
    }
}

/// Searches the debug information of `image`.
pub(crate) fn find(image: &Image, options: &NameOptions) -> Found {
    if image.has_dwarf {
        return Found::Within;
    }
    if let Some(file) = by_build_id(image, options) {
        return Found::At(file);
    }
    let Some((name, crc)) = &image.debug_link else {
        return Found::None;
    };
    match by_link(image, name, *crc, options) {
        Some(file) => Found::At(file),
        None => Found::LinkBroken(name.clone()),
    }
}

fn by_build_id(image: &Image, options: &NameOptions) -> Option<Opened> {
    let id = image.build_id.as_deref().filter(|id| id.len() >= 2)?;
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let below = format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    let cache = options.debuginfod_cache.iter();
    let fetched = cache.map(|folder| folder.join(&hex).join("debuginfo"));
    let installed = options.debug_dirs.iter().map(|d| d.join(&below));
    let mut found = installed
        .filter_map(|path| Opened::of_target(path, options))
        .chain(fetched.filter_map(Opened::fetched));
    found.find(|o| inspect(&o.file).is_some_and(|f| f.dwarf && f.build_id.as_deref() == Some(id)))
}

fn by_link(image: &Image, name: &Path, crc: u32, options: &NameOptions) -> Option<Opened> {
    let folder = image.path.parent()?;
    let below = folder.strip_prefix("/").unwrap_or(folder);
    let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
    for dir in &options.debug_dirs {
        places.push(dir.join(below).join(name));
    }
    places
        .into_iter()
        .filter(|path| *path != image.path)
        .filter_map(|path| Opened::of_target(path, options))
        .find(|o| inspect(&o.file).is_some() && checksum(&o.file) == Some(crc))
}

struct Inspected {
    build_id: Option<Vec<u8>>,
    dwarf: bool,
}

fn inspect(file: &File) -> Option<Inspected> {
    let bytes = FileBytes::of(file.try_clone().ok()?);
    let elf: Elf<'_> = ElfFile64::parse(&bytes).ok()?;
    Some(Inspected {
        build_id: elf.build_id().ok().flatten().map(<[u8]>::to_vec),
        dwarf: has_dwarf(&elf),
    })
}

/// The CRC-32 (polynomial 0xedb88320) of a file, as in `.gnu_debuglink`. `None` if it can't be read
/// or claims to be larger than what may be read: each byte of a hole costs as much time as another.
fn checksum(file: &File) -> Option<u32> {
    let len = file.metadata().ok()?.len();
    if len > allowance(file) || !CHECKED.take(len) {
        return None;
    }
    let mut at = 0;
    let mut crc = !0u32;
    let mut buffer = vec![0; 1 << 16];
    // A file that grows meanwhile is not followed.
    while at < len {
        let n = file.read_at(&mut buffer, at).ok()?;
        at += n as u64;
        if n == 0 {
            break;
        }
        crc = buffer[..n].iter().fold(crc, |crc, &byte| {
            CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
        });
    }
    Some(!crc)
}

const CRC_TABLE: [u32; 256] = {
    let mut table = [0u32; 256];
    let mut i = 0;
    while i < 256 {
        let mut value = i as u32;
        let mut bit = 0;
        while bit < 8 {
            value = (value >> 1) ^ (0xedb8_8320 & (value & 1).wrapping_neg());
            bit += 1;
        }
        table[i] = value;
        i += 1;
    }
    table
};

/// The supplementary file that the file `main` names in `.gnu_debugaltlink`: `Ok(None)` if it names
/// none, `Err` with the name if the file is missing.
pub(crate) fn supplementary(
    elf: &Elf<'_>,
    main: &Path,
    options: &NameOptions,
) -> Result<Option<File>, PathBuf> {
    let Some((name, id)) = elf.gnu_debugaltlink().ok().flatten() else {
        return Ok(None);
    };
    let name = PathBuf::from(OsStr::from_bytes(name));
    let beside = main.parent().map(|d| d.join(&name));
    let mut places: Vec<PathBuf> = beside.into_iter().collect();
    if let Some(tail) = name.components().next_back() {
        for dir in &options.debug_dirs {
            places.push(dir.join(".dwz").join(tail));
            places.push(dir.join(".dwz/x86_64-linux-gnu").join(tail));
        }
    }
    let found = places
        .into_iter()
        .filter_map(|path| options.files.open(&path).ok())
        .find(|file| inspect(file).is_some_and(|f| f.build_id.as_deref() == Some(id)));
    found.map(Some).ok_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksums_are_those_of_the_format() {
        let file = tempfile::tempfile().expect("a file");
        file.write_all_at(b"123456789", 0).expect("written");
        // The check value of CRC-32/ISO-HDLC in the catalogue of CRC algorithms.
        assert_eq!(checksum(&file), Some(0xcbf4_3926));
    }

    #[test]
    fn no_checksum_is_made_of_a_file_that_is_one_hole() {
        let file = tempfile::tempfile().expect("a file");
        if file.set_len(8 << 40).is_err() {
            println!("SKIP: the file system has no files of this size");
            return;
        }
        file.write_all_at(b"\x7fELF", 0).expect("written");
        assert_eq!(checksum(&file), None);
    }
}
