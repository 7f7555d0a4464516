//! Lists the program's loaded files and their addresses. The program's mappings are among those of
//! this process; mappings from before the program are the emulator's. The list is written when the
//! program has mapped files since the last one, and at the end. Contexts: normal.

use crate::RECORDER;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::OnceLock;
use sunder_guest::maps;
use sunder_trace::meta::{ModuleParts, Segment};

/// The file name of the library within the program, as the kernel shows it.
const ANNOUNCER: &str = "sunder-announce";

/// The addresses of the library within the program, whose own accesses are not recorded.
static START: AtomicU64 = AtomicU64::new(0);
static END: AtomicU64 = AtomicU64::new(0);

/// The mappings from before the program was loaded.
static EMULATOR: OnceLock<Vec<(u64, u64)>> = OnceLock::new();

/// Whether files were mapped since the last list.
static CHANGED: AtomicBool = AtomicBool::new(true);

/// Keeps the current mappings as the emulator's. Called before the program is loaded.
pub fn remember_emulator() {
    let _ = EMULATOR.set(mappings().into_iter().map(|m| (m.start, m.end)).collect());
}

/// Called when the program has mapped or unmapped something.
pub fn changed() {
    CHANGED.store(true, Ordering::Relaxed);
}

/// Writes the list if it has changed.
pub fn write() {
    if !CHANGED.swap(false, Ordering::Relaxed) || !RECORDER.is_recording() {
        return;
    }
    let modules = loaded();
    RECORDER.modules(|writer| {
        for module in &modules {
            let parts = ModuleParts {
                base: module.base,
                path: module.path.as_bytes(),
                build_id: &module.build_id,
            };
            writer.add(&parts, module.segments.iter().copied());
        }
    });
}

/// Whether `address` is in the library within the program.
pub fn is_in_announcer(address: u64) -> bool {
    (START.load(Ordering::Relaxed)..END.load(Ordering::Relaxed)).contains(&address)
}

struct Mapping {
    start: u64,
    end: u64,
    offset: u64,
    path: String,
}

fn list() -> Vec<u8> {
    std::fs::read("/proc/self/maps").unwrap_or_default()
}

fn mappings() -> Vec<Mapping> {
    maps::all(&list()).filter_map(|m| of_file(&m)).collect()
}

/// Start and end of the mapping that contains `address`, of a file or anonymous.
pub fn mapping_at(address: u64) -> Option<(u64, u64)> {
    let list = list();
    let found = maps::all(&list).find(|m| m.contains(address as usize))?;
    Some((found.start as u64, found.end as u64))
}

fn of_file(mapping: &maps::Mapping<'_>) -> Option<Mapping> {
    mapping.is_of_file().then(|| Mapping {
        start: mapping.start as u64,
        end: mapping.end as u64,
        offset: mapping.offset as u64,
        path: String::from_utf8_lossy(mapping.name).into_owned(),
    })
}

struct Loaded {
    base: u64,
    path: String,
    build_id: Vec<u8>,
    segments: Vec<Segment>,
}

fn loaded() -> Vec<Loaded> {
    let own = EMULATOR.get().map_or(&[][..], |own| own);
    let is_own = |m: &Mapping| own.iter().any(|&(s, e)| m.start < e && s < m.end);
    let mut all: Vec<Loaded> = Vec::new();
    for first in mappings().iter().filter(|m| m.offset == 0 && !is_own(m)) {
        if all.last().is_some_and(|l| covers(l, first.start)) {
            continue;
        }
        if first.path.contains(ANNOUNCER) {
            if let Some(library) = describe(first) {
                let ends = library.segments.iter().map(|s| s.start + s.bytes);
                START.store(first.start, Ordering::Relaxed);
                END.store(ends.max().unwrap_or(first.end), Ordering::Relaxed);
            }
            continue;
        }
        all.extend(describe(first));
    }
    all
}

fn covers(module: &Loaded, address: u64) -> bool {
    let inside = |s: &Segment| (s.start..s.start + s.bytes).contains(&address);
    module.segments.iter().any(inside)
}

fn describe(first: &Mapping) -> Option<Loaded> {
    // This link leads to the mapped file even if another file has its name by now.
    let link = format!("/proc/self/map_files/{:x}-{:x}", first.start, first.end);
    let file = File::open(link).or_else(|_| File::open(&first.path)).ok()?;
    let headers = Headers::read(&file)?;
    let base = first.start.wrapping_sub(headers.first_address()?);
    let segments = headers.of_type(libc::PT_LOAD).map(|h| Segment {
        start: base.wrapping_add(h.p_vaddr),
        bytes: h.p_memsz,
        file_offset: h.p_offset,
        flags: h.p_flags,
    });
    Some(Loaded {
        base,
        path: first.path.clone(),
        build_id: headers.build_id(&file).unwrap_or_default(),
        segments: segments.collect(),
    })
}

struct Headers(Vec<libc::Elf64_Phdr>);

impl Headers {
    fn read(file: &File) -> Option<Self> {
        let mut head = [0; 64];
        file.read_exact_at(&mut head, 0).ok()?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return None;
        }
        let short = |at: usize| Some(u16::from_le_bytes(*head.get(at..)?.first_chunk()?));
        let offset = u64::from_le_bytes(*head.get(32..)?.first_chunk()?);
        let count = short(56)?;
        if usize::from(short(54)?) != size_of::<libc::Elf64_Phdr>() {
            return None;
        }
        let mut bytes = vec![0; usize::from(count) * size_of::<libc::Elf64_Phdr>()];
        file.read_exact_at(&mut bytes, offset).ok()?;
        let read = |chunk: &[u8; 56]| {
            // SAFETY: every bit pattern of this size is a valid header.
            unsafe { core::ptr::read_unaligned(chunk.as_ptr().cast::<libc::Elf64_Phdr>()) }
        };
        Some(Self(bytes.as_chunks::<56>().0.iter().map(read).collect()))
    }

    fn of_type(&self, kind: u32) -> impl Iterator<Item = &libc::Elf64_Phdr> {
        self.0.iter().filter(move |h| h.p_type == kind)
    }

    /// The file's own address (before loading) for its first byte.
    fn first_address(&self) -> Option<u64> {
        let first = self.of_type(libc::PT_LOAD).next()?;
        first.p_vaddr.checked_sub(first.p_offset)
    }

    fn build_id(&self, file: &File) -> Option<Vec<u8>> {
        const BUILD_ID: u32 = 3;
        const LONGEST: u64 = 1 << 16;
        for header in self.of_type(libc::PT_NOTE) {
            let mut bytes = vec![0; header.p_filesz.min(LONGEST) as usize];
            file.read_exact_at(&mut bytes, header.p_offset).ok()?;
            let mut notes = bytes.as_slice();
            while let Some((head, rest)) = notes.split_first_chunk::<12>() {
                let [name, bytes, kind] = [0, 4, 8].map(|at| {
                    let word = head.get(at..).and_then(|w| w.first_chunk());
                    word.map_or(0, |w| u32::from_le_bytes(*w))
                });
                let name = (name as usize).next_multiple_of(4);
                let contents = rest.get(name..).and_then(|r| r.get(..bytes as usize));
                if kind == BUILD_ID && rest.starts_with(b"GNU\0") {
                    return contents.map(<[u8]>::to_vec);
                }
                let next = name + (bytes as usize).next_multiple_of(4);
                notes = rest.get(next..).unwrap_or_default();
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_mappings_of_files_are_listed() {
        let files = |list: &str| -> Vec<Mapping> {
            let all = maps::all(list.as_bytes());
            all.filter_map(|m| of_file(&m)).collect()
        };
        let line = "7f00-7f80 r-xp 00001000 08:01 42                  /usr/lib/a b.so";
        let found = files(line);
        let m = found.first().expect("a file");
        assert_eq!((m.start, m.end, m.offset), (0x7f00, 0x7f80, 0x1000));
        assert_eq!(m.path, "/usr/lib/a b.so");
        for other in [
            "7f00-7f80 rw-p 00000000 00:00 0 ",
            "x",
            "7f00-7f80 rw-p 0 0 0 [heap]",
        ] {
            assert!(files(other).is_empty(), "{other}");
        }
    }

    #[test]
    fn an_address_on_the_stack_lies_in_a_mapping() {
        let here = 0u8;
        let address = (&raw const here).addr() as u64;
        let (start, end) = mapping_at(address).expect("it is mapped");
        assert!(start <= address && address < end);
        assert_eq!(mapping_at(8), None);
    }

    #[test]
    fn the_own_program_is_listed_at_its_address() {
        let own = std::env::current_exe().expect("the path of the executable is known");
        let all = loaded();
        let module = all
            .iter()
            .find(|m| own.ends_with(&m.path) || own.to_str() == Some(&m.path));
        let module = module.expect("it is loaded");
        let here = the_own_program_is_listed_at_its_address as *const () as u64;
        assert!(covers(module, here));
    }
}
