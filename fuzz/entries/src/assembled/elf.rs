//! The file around the sections, after the ELF-64 object file format: one loaded segment with all of
//! it, code, data, thread-local data, and the table of sections.

/// Bytes of the file's header, of a segment's, of a section's, and of a symbol.
const HEADER: usize = 64;
const SEGMENT: usize = 56;
const SECTION: usize = 64;
pub const SYMBOL: usize = 24;

/// Where code, data and thread-local data lie, in the file and in memory.
const CODE: u64 = 0x1000;
const DATA: u64 = 0x2000;
const LOCALS: u64 = 0x3000;
const END: u64 = 0x3100;

/// Constants of the format.
mod is {
    pub const PROGRAM: u32 = 1;
    pub const SYMBOLS: u32 = 2;
    pub const STRINGS: u32 = 3;
    pub const CODE: u64 = 2 | 4;
    pub const DATA: u64 = 2 | 1;
    pub const LOCAL: u64 = 2 | 1 | 0x400;
    pub const COMPRESSED: u64 = 0x800;
    /// `ELFCOMPRESS_ZSTD`
    pub const ZSTANDARD: u32 = 2;
}

/// A section that is not loaded.
pub struct Section {
    name: &'static str,
    bytes: Vec<u8>,
    flags: u64,
}

impl Section {
    pub const fn new(name: &'static str, bytes: Vec<u8>) -> Self {
        Self {
            name,
            bytes,
            flags: 0,
        }
    }

    /// The same, compressed.
    pub fn compressed(self) -> Self {
        let mut bytes = Vec::new();
        bytes.extend(is::ZSTANDARD.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend((self.bytes.len() as u64).to_le_bytes());
        bytes.extend(1u64.to_le_bytes());
        let mut packed = vec![0; zstd_safe::compress_bound(self.bytes.len())];
        let length = zstd_safe::compress(&mut packed[..], &self.bytes, 1).expect("it has room");
        bytes.extend(&packed[..length]);
        Self {
            bytes,
            flags: is::COMPRESSED,
            ..self
        }
    }
}

/// An executable.
#[derive(Default)]
pub struct Elf {
    /// The table of symbols, and their names.
    pub symbols: Option<(Vec<u8>, Vec<u8>)>,
    pub sections: Vec<Section>,
}

/// What the table of sections says of one.
struct Entry<'a> {
    name: &'a str,
    kind: u32,
    flags: u64,
    address: u64,
    at: u64,
    size: u64,
    link: u32,
}

impl Elf {
    /// The whole file.
    pub fn bytes(&self) -> Vec<u8> {
        let mut file = vec![0; END as usize];
        let loaded = |name, flags, at, end| Entry {
            name,
            kind: is::PROGRAM,
            flags,
            address: at,
            at,
            size: end - at,
            link: 0,
        };
        let mut entries = vec![
            loaded(".text", is::CODE, CODE, DATA),
            loaded(".data", is::DATA, DATA, LOCALS),
            loaded(".tdata", is::LOCAL, LOCALS, END),
        ];
        let mut add = |name, kind, flags, link, bytes: &[u8]| {
            let at = file.len() as u64;
            file.extend(bytes);
            entries.push(Entry {
                name,
                kind,
                flags,
                address: 0,
                at,
                size: bytes.len() as u64,
                link,
            });
            entries.len() as u32
        };
        if let Some((table, names)) = &self.symbols {
            let link = add(".strtab", is::STRINGS, 0, 0, names);
            add(".symtab", is::SYMBOLS, 0, link, table);
        }
        for section in &self.sections {
            add(section.name, is::PROGRAM, section.flags, 0, &section.bytes);
        }
        let mut names = vec![0];
        let mut starts = Vec::new();
        for name in entries.iter().map(|e| e.name).chain([".shstrtab"]) {
            starts.push(names.len() as u32);
            names.extend(name.as_bytes());
            names.push(0);
        }
        let at = file.len() as u64;
        file.extend(&names);
        entries.push(Entry {
            name: ".shstrtab",
            kind: is::STRINGS,
            flags: 0,
            address: 0,
            at,
            size: names.len() as u64,
            link: 0,
        });
        let table = file.len() as u64;
        file.extend([0; SECTION]);
        for (entry, name) in entries.iter().zip(starts) {
            file.extend(name.to_le_bytes());
            file.extend(entry.kind.to_le_bytes());
            for value in [entry.flags, entry.address, entry.at, entry.size] {
                file.extend(value.to_le_bytes());
            }
            file.extend(entry.link.to_le_bytes());
            file.extend(0u32.to_le_bytes());
            let size = if entry.kind == is::SYMBOLS { SYMBOL } else { 0 };
            file.extend(1u64.to_le_bytes());
            file.extend((size as u64).to_le_bytes());
        }
        let sections = entries.len() as u16 + 1;
        let head = head(table, sections, file.len() as u64);
        file[..head.len()].copy_from_slice(&head);
        file
    }
}

/// The headers of the file and of its two segments.
fn head(table: u64, sections: u16, length: u64) -> Vec<u8> {
    // 64 bits, little-endian, version 1.
    let mut head = vec![0x7f, b'E', b'L', b'F', 2, 1, 1];
    head.resize(16, 0);
    let shared_object = 3u16;
    let x86_64 = 62u16;
    head.extend(shared_object.to_le_bytes());
    head.extend(x86_64.to_le_bytes());
    head.extend(1u32.to_le_bytes());
    for value in [CODE, HEADER as u64, table] {
        head.extend(value.to_le_bytes());
    }
    head.extend(0u32.to_le_bytes());
    let sizes = [HEADER, SEGMENT, 2, SECTION].map(|size| size as u16);
    for value in sizes.into_iter().chain([sections, sections - 1]) {
        head.extend(value.to_le_bytes());
    }
    let (load, locals) = (1u32, 7u32);
    for (kind, at, size) in [(load, 0, length), (locals, LOCALS, END - LOCALS)] {
        head.extend(kind.to_le_bytes());
        let all = 7u32;
        head.extend(all.to_le_bytes());
        for value in [at, at, at, size, size, 16] {
            head.extend(value.to_le_bytes());
        }
    }
    head
}
