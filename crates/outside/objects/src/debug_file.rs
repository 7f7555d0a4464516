//! Finding separate debug files: by build-id, by `.gnu_debuglink`, and the
//! supplementary file of `dwz`. Called by [`crate::dwarf`]; the search order is
//! gdb's ("Debugging Information in Separate Files").

use crate::image::{Elf, Image, has_dwarf, open_regular};
use crate::options::NameOptions;
use object::read::elf::ElfFile64;
use object::{Object, ReadCache};
use std::io::Read;
use std::path::{Path, PathBuf};

/// The result of the search for a module's debug information.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Found {
    /// In this file, which may be the module itself.
    At(PathBuf),
    /// A debug link names a file that is missing or does not match.
    LinkBroken(PathBuf),
    /// Neither debug information nor a link to it.
    None,
}

/// Searches the debug information of `image`.
pub(crate) fn find(image: &Image, options: &NameOptions) -> Found {
    if image.has_dwarf {
        return Found::At(image.path.clone());
    }
    if let Some(path) = by_build_id(image, options) {
        return Found::At(path);
    }
    let Some((name, crc)) = &image.debug_link else {
        return Found::None;
    };
    match by_link(image, name, *crc, options) {
        Some(path) => Found::At(path),
        None => Found::LinkBroken(name.clone()),
    }
}

fn by_build_id(image: &Image, options: &NameOptions) -> Option<PathBuf> {
    let id = image.build_id.as_deref().filter(|id| id.len() >= 2)?;
    let hex: String = id.iter().map(|b| format!("{b:02x}")).collect();
    let below = format!(".build-id/{}/{}.debug", &hex[..2], &hex[2..]);
    let cache = options.debuginfod_cache.iter();
    let fetched = cache.map(|folder| folder.join(&hex).join("debuginfo"));
    let mut places = options
        .debug_dirs
        .iter()
        .map(|d| options.rooted(&d.join(&below)))
        .chain(fetched);
    places.find(|path| inspect(path).is_some_and(|f| f.dwarf && f.build_id.as_deref() == Some(id)))
}

fn by_link(image: &Image, name: &Path, crc: u32, options: &NameOptions) -> Option<PathBuf> {
    let folder = image.path.parent()?;
    let inside = options.unrooted(folder);
    let inside = inside.strip_prefix("/").unwrap_or(&inside).to_owned();
    let mut places = vec![folder.join(name), folder.join(".debug").join(name)];
    for dir in &options.debug_dirs {
        places.push(options.rooted(&dir.join(&inside).join(name)));
    }
    places
        .into_iter()
        .find(|path| *path != image.path && checksum(path) == Some(crc) && inspect(path).is_some())
}

struct Inspected {
    build_id: Option<Vec<u8>>,
    dwarf: bool,
}

fn inspect(path: &Path) -> Option<Inspected> {
    let cache = ReadCache::new(open_regular(path).ok()?);
    let elf: Elf<'_> = ElfFile64::parse(&cache).ok()?;
    Some(Inspected {
        build_id: elf.build_id().ok().flatten().map(<[u8]>::to_vec),
        dwarf: has_dwarf(&elf),
    })
}

/// The CRC-32 (polynomial 0xedb88320) of a file, as in `.gnu_debuglink`.
fn checksum(path: &Path) -> Option<u32> {
    let mut file = open_regular(path).ok()?;
    let mut crc = !0u32;
    let mut buffer = vec![0; 1 << 16];
    loop {
        let n = file.read(&mut buffer).ok()?;
        if n == 0 {
            return Some(!crc);
        }
        crc = buffer[..n].iter().fold(crc, |crc, &byte| {
            CRC_TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
        });
    }
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

/// The path of the supplementary file that `main` names in `.gnu_debugaltlink`: `Ok(None)` if it
/// names none, `Err` with the name if the file is missing.
pub(crate) fn supplementary(
    elf: &Elf<'_>,
    main: &Path,
    options: &NameOptions,
) -> Result<Option<PathBuf>, PathBuf> {
    use std::os::unix::ffi::OsStrExt;
    let Some((name, id)) = elf.gnu_debugaltlink().ok().flatten() else {
        return Ok(None);
    };
    let name = PathBuf::from(std::ffi::OsStr::from_bytes(name));
    let beside = main.parent().map(|d| d.join(&name));
    let mut places: Vec<PathBuf> = beside.into_iter().collect();
    if let Some(tail) = name.components().next_back() {
        for dir in &options.debug_dirs {
            places.push(options.rooted(&dir.join(".dwz").join(tail)));
            places.push(options.rooted(&dir.join(".dwz/x86_64-linux-gnu").join(tail)));
        }
    }
    let fits = |path: &PathBuf| inspect(path).is_some_and(|f| f.build_id.as_deref() == Some(id));
    places.into_iter().find(fits).map(Some).ok_or(name)
}
