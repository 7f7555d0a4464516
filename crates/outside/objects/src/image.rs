//! One ELF file: segments, symbols ([`crate::symbols`]) and the bytes of its code. Called by [`crate::names`]; does not
//! know the addresses at which the file is mapped.

pub(crate) use crate::bounded::Elf;
use crate::bounded::FileBytes;
use crate::symbols::Symbols;
use object::elf;
use object::read::elf::{ElfFile64, ProgramHeader};
use object::{
    LittleEndian, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget,
};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use sunder_access::{LinkAddress, PAGE};

/// Why a file gives no names.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub(crate) enum ImageError {
    #[error("it cannot be read ({0})")]
    Io(#[from] std::io::Error),
    #[error("it is no x86-64 ELF file ({0})")]
    Format(#[from] object::Error),
    #[error("it is built for another architecture")]
    Architecture,
    #[error("the file was replaced or deleted after the program had mapped it")]
    Replaced,
    #[error(
        "the file was replaced or deleted after the program had mapped it, and the kernel lets \
         only processes with CAP_CHECKPOINT_RESTORE read it all the same"
    )]
    Refused,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Segment {
    pub(crate) address: u64,
    pub(crate) offset: u64,
    pub(crate) file_size: u64,
    pub(crate) memory_size: u64,
    executable: bool,
}

#[derive(Clone, Copy, Debug)]
struct TlsSegment {
    address: u64,
    memory_size: u64,
    align: u64,
}

#[derive(Debug)]
pub(crate) struct Image {
    pub(crate) path: PathBuf,
    file: File,
    pub(crate) segments: Vec<Segment>,
    tls: Option<TlsSegment>,
    pub(crate) symbols: Symbols,
    pub(crate) build_id: Option<Vec<u8>>,
    pub(crate) debug_link: Option<(PathBuf, u32)>,
    pub(crate) has_dwarf: bool,
    /// Whether it is a program of Go, whose runtime keeps stacks on its heap.
    pub(crate) is_go: bool,
}

impl Image {
    /// Reads headers and symbols of `file`, which the program has at `path`.
    pub(crate) fn read(path: &Path, file: File) -> Result<Self, ImageError> {
        let bytes = FileBytes::of(file.try_clone()?);
        let elf: Elf<'_> = ElfFile64::parse(&bytes)?;
        if elf.elf_header().e_machine.get(LittleEndian) != elf::EM_X86_64 {
            return Err(ImageError::Architecture);
        }
        let (segments, tls) = load_segments(&elf);
        Ok(Self {
            path: path.to_owned(),
            segments,
            tls,
            symbols: Symbols::read(&elf),
            build_id: elf.build_id().ok().flatten().map(<[u8]>::to_vec),
            debug_link: debug_link(&elf),
            has_dwarf: has_dwarf(&elf),
            is_go: elf.section_by_name(".go.buildinfo").is_some(),
            file,
        })
    }

    /// What tells its file from all others: its build id, and which file it is. The build id alone is not
    /// enough, since whoever builds a program chooses it: answers about one program would then name the
    /// data of another. `None` if it has none.
    pub(crate) fn identity(&self) -> Option<String> {
        let id = self.build_id.as_deref().filter(|id| id.len() >= 8)?;
        let digits = id.iter().take(64).map(|byte| format!("{byte:02x}"));
        let facts = self.file.metadata().ok()?;
        Some(format!(
            "{} {:x} {:x} {:x} {:x}.{:x}",
            digits.collect::<String>(),
            facts.dev(),
            facts.ino(),
            facts.size(),
            facts.ctime(),
            facts.ctime_nsec()
        ))
    }

    /// The file itself.
    pub(crate) fn file(&self) -> std::io::Result<File> {
        self.file.try_clone()
    }

    /// The lowest and the highest link address of its segments.
    pub(crate) fn span(&self) -> (u64, u64) {
        let starts = self.segments.iter().map(|s| s.address);
        let ends = self
            .segments
            .iter()
            .map(|s| s.address.saturating_add(s.memory_size));
        (starts.min().unwrap_or(0), ends.max().unwrap_or(0))
    }

    /// The file offset and link address of the first page that the loader maps: that of the first
    /// segment.
    pub(crate) fn first_page(&self) -> Option<(u64, u64)> {
        let first = self.segments.iter().min_by_key(|s| s.address)?;
        Some((page(first.offset), page(first.address)))
    }

    /// The link address of the byte at `offset` in the file, in the segment that is executable or
    /// not, as `executable` says.
    pub(crate) fn link_address(&self, offset: u64, executable: bool) -> Option<LinkAddress> {
        // The loader maps whole pages, so a mapping may begin before and end after the segment's
        // own bytes, and two segments may share a page.
        let covering = |s: &&Segment| {
            offset >= page(s.offset) && offset < s.offset.saturating_add(s.file_size)
        };
        let wanted = |s: &&Segment| s.executable == executable;
        let all = || self.segments.iter().filter(covering);
        let segment = all().find(wanted).or_else(|| all().next())?;
        Some(LinkAddress(
            segment
                .address
                .wrapping_add(offset)
                .wrapping_sub(segment.offset),
        ))
    }

    /// For an executable, the distance from the start of its TLS block to the thread pointer: the
    /// block's size, rounded up so that its start is congruent to the segment's address modulo its
    /// alignment (glibc's `_dl_determine_tlsoffset`).
    pub(crate) fn tls_size(&self) -> Option<u64> {
        let tls = self.tls?;
        let first = tls.address.wrapping_neg() & (tls.align - 1);
        let size = tls.memory_size.saturating_sub(first);
        size.checked_next_multiple_of(tls.align)?.checked_add(first)
    }

    /// Whether the loader maps the file from `offset` on at `address`.
    pub(crate) fn maps(&self, address: LinkAddress, offset: u64) -> bool {
        self.segments.iter().any(|s| {
            let into = address.0.wrapping_sub(page(s.address));
            into < s.memory_size.saturating_add(s.address - page(s.address))
                && page(s.offset).checked_add(into) == Some(offset)
        })
    }

    /// Whether `address` lies in a loaded segment, zero-filled parts included.
    pub(crate) fn holds(&self, address: LinkAddress) -> bool {
        self.segments.iter().any(|s| {
            address
                .0
                .checked_sub(s.address)
                .is_some_and(|d| d < s.memory_size)
        })
    }

    /// Addresses that the loader writes to pointers of the file, by the pointer's own address:
    /// targets of calls through the global offset table.
    pub(crate) fn pointers(&self) -> HashMap<u64, u64> {
        let Ok(file) = self.file.try_clone() else {
            return HashMap::new();
        };
        let bytes = FileBytes::of(file);
        let Ok(elf) = ElfFile64::<LittleEndian, _>::parse(&bytes) else {
            return HashMap::new();
        };
        let relative = RelocationFlags::Elf {
            r_type: elf::R_X86_64_RELATIVE,
        };
        let all = elf.dynamic_relocations().into_iter().flatten();
        all.filter(|(_, r)| r.flags() == relative)
            .take(MOST_POINTERS)
            .map(|(place, r)| (place, r.addend() as u64))
            .collect()
    }

    /// Names of functions that the loader looks up, by the address of the pointer that it sets.
    pub(crate) fn imports(&self) -> HashMap<u64, String> {
        let Ok(file) = self.file.try_clone() else {
            return HashMap::new();
        };
        let bytes = FileBytes::of(file);
        let Ok(elf) = ElfFile64::<LittleEndian, _>::parse(&bytes) else {
            return HashMap::new();
        };
        let Some(table) = elf.dynamic_symbol_table() else {
            return HashMap::new();
        };
        let name = |target| match target {
            RelocationTarget::Symbol(index) => {
                let symbol = table.symbol_by_index(index).ok()?;
                Some(symbol.name().ok()?.to_owned())
            }
            _ => None,
        };
        let all = elf.dynamic_relocations().into_iter().flatten();
        all.filter_map(|(place, r)| Some((place, name(r.target())?)))
            .take(MOST_IMPORTS)
            .collect()
    }

    /// Instructions that may be calls of, or jumps to, functions whose addresses are in `direct` or
    /// the addresses of whose pointers are in `pointers`: the instruction's address, the address
    /// after it, and the function's value in the table. Bytes that only look like a call are among
    /// them. Segments beyond [`MAX_SEARCHED`] bytes of code are not searched.
    pub(crate) fn calls_of(
        &self,
        direct: &HashMap<u64, usize>,
        pointers: &HashMap<u64, usize>,
    ) -> Vec<(u64, u64, usize)> {
        let mut left = MAX_SEARCHED;
        let code: Vec<(u64, Vec<u8>)> = self
            .segments
            .iter()
            .filter(|s| s.executable)
            .filter_map(|s| {
                left = left.checked_sub(s.file_size)?;
                let mut bytes = vec![0; usize::try_from(s.file_size).ok()?];
                self.file.read_exact_at(&mut bytes, s.offset).ok()?;
                Some((s.address, bytes))
            })
            .collect();
        let mut direct = direct.clone();
        for (start, bytes) in &code {
            for at in places_of(bytes, [0xff, 0x25]) {
                if let Some(&which) = pointers.get(&target(bytes, *start, at, 2)) {
                    for lead in STUB_LEADS {
                        if bytes[..at].ends_with(lead) {
                            direct.insert(start.wrapping_add((at - lead.len()) as u64), which);
                        }
                    }
                }
            }
        }
        let mut found = Vec::new();
        for (start, bytes) in &code {
            let mut add = |at: usize, length: usize, which: Option<&usize>| {
                let ip = start.wrapping_add(at as u64);
                found.extend(which.map(|&w| (ip, ip.wrapping_add(length as u64), w)));
            };
            for at in 0..bytes.len().saturating_sub(4) {
                match bytes[at] {
                    0xe8 | 0xe9 => add(at, 5, direct.get(&target(bytes, *start, at, 1))),
                    0xff if bytes[at + 1] == 0x15 => {
                        add(at, 6, pointers.get(&target(bytes, *start, at, 2)));
                    }
                    _ => {}
                }
            }
        }
        found
    }

    /// Whether `address` is code.
    pub(crate) fn is_code(&self, address: LinkAddress) -> bool {
        let mut code = self.segments.iter().filter(|s| s.executable);
        code.any(|s| {
            address
                .0
                .checked_sub(s.address)
                .is_some_and(|d| d < s.memory_size)
        })
    }

    /// The `len` bytes from `start` in the file; fewer at the end of the segment.
    pub(crate) fn bytes(&self, start: LinkAddress, len: u64) -> Vec<u8> {
        let Some((segment, into)) = self.segments.iter().find_map(|s| {
            let into = start.0.checked_sub(s.address)?;
            (into < s.file_size).then_some((s, into))
        }) else {
            return Vec::new();
        };
        let len = len.min(segment.file_size - into).min(MAX_CODE) as usize;
        let mut bytes = vec![0; len];
        match self
            .file
            .read_exact_at(&mut bytes, segment.offset.saturating_add(into))
        {
            Ok(()) => bytes,
            Err(_) => Vec::new(),
        }
    }
}

/// Bytes that may precede the jump of a linker's stub: none, a prefix, and a landing pad with or
/// without that prefix.
const STUB_LEADS: [&[u8]; 4] = [
    &[],
    &[0xf2],
    &[0xf3, 0x0f, 0x1e, 0xfa],
    &[0xf3, 0x0f, 0x1e, 0xfa, 0xf2],
];

fn places_of(bytes: &[u8], wanted: [u8; 2]) -> impl Iterator<Item = usize> {
    (0..bytes.len().saturating_sub(5)).filter(move |&at| bytes[at..at + 2] == wanted)
}

/// The address that the relative operand after the `opcode` bytes at `at` leads to; 0 beyond the
/// end.
fn target(bytes: &[u8], start: u64, at: usize, opcode: usize) -> u64 {
    let operand = bytes.get(at + opcode..at + opcode + 4);
    let Some(distance) = operand.and_then(|b| Some(i32::from_le_bytes(b.try_into().ok()?))) else {
        return 0;
    };
    start
        .wrapping_add((at + opcode + 4) as u64)
        .wrapping_add_signed(i64::from(distance))
}

const fn page(x: u64) -> u64 {
    x & !(PAGE - 1)
}

/// The most relocations of pointers that are kept; Chromium has about a million.
const MOST_POINTERS: usize = 1 << 24;
/// The most names of imported functions that are kept.
const MOST_IMPORTS: usize = 1 << 17;

/// How many bytes of a file's code are searched for calls.
const MAX_SEARCHED: u64 = 64 << 20;

/// The most code that is read as one piece: the longest functions of real programs (interpreters,
/// generated parsers) are far shorter.
const MAX_CODE: u64 = 1 << 20;

/// Like [`Image::first_page`], for a file that is not read otherwise.
pub(crate) fn first_page_of(elf: &Elf<'_>) -> Option<(u64, u64)> {
    let (segments, _) = load_segments(elf);
    let first = segments.iter().min_by_key(|s| s.address)?;
    Some((page(first.offset), page(first.address)))
}

fn load_segments(elf: &Elf<'_>) -> (Vec<Segment>, Option<TlsSegment>) {
    let mut segments = Vec::new();
    let mut tls = None;
    for header in elf.elf_program_headers() {
        let e = LittleEndian;
        match header.p_type(e) {
            elf::PT_LOAD => segments.push(Segment {
                address: header.p_vaddr(e),
                offset: header.p_offset(e),
                file_size: header.p_filesz(e),
                memory_size: header.p_memsz(e),
                executable: header.p_flags(e).contains(elf::PF_X),
            }),
            elf::PT_TLS => {
                tls = Some(TlsSegment {
                    address: header.p_vaddr(e),
                    memory_size: header.p_memsz(e),
                    align: header.p_align(e).checked_next_power_of_two().unwrap_or(1),
                });
            }
            _ => {}
        }
    }
    (segments, tls)
}

fn debug_link(elf: &Elf<'_>) -> Option<(PathBuf, u32)> {
    use std::os::unix::ffi::OsStrExt;
    let (name, crc) = elf.gnu_debuglink().ok().flatten()?;
    Some((PathBuf::from(std::ffi::OsStr::from_bytes(name)), crc))
}

/// Whether the file itself has debug information (not only line tables).
pub(crate) fn has_dwarf(elf: &Elf<'_>) -> bool {
    // In a file made by `--only-keep-debug` the section has bytes; in a stripped one it is missing
    // or empty.
    elf.section_by_name(".debug_info")
        .is_some_and(|s| s.size() > 0)
}
