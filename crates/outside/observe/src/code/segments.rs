//! The segments of an ELF file, and the bytes in them.

use std::fs::File;
use std::os::unix::fs::FileExt;

/// A loadable segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment {
    pub address: u64,
    pub file_offset: u64,
    pub len: u64,
    pub execute: bool,
}

/// The bytes of the file.
#[derive(Debug)]
pub(super) enum Data {
    File(File),
    Memory(Vec<u8>),
}

/// The loadable segments of a file.
#[derive(Debug)]
pub(super) struct Segments {
    data: Data,
    segments: Vec<Segment>,
}

impl Segments {
    pub(super) const fn new(data: Data, segments: Vec<Segment>) -> Self {
        Self { data, segments }
    }

    pub(super) fn all(&self) -> &[Segment] {
        &self.segments
    }

    /// Bytes at an address of the file; `None` if the file does not hold them (any more).
    pub(super) fn read(&self, address: u64, len: u64) -> Option<Vec<u8>> {
        let segment = self.at(address)?;
        let inside = address - segment.address;
        if len > segment.len - inside {
            return None;
        }
        let offset = segment.file_offset + inside;
        match &self.data {
            Data::File(file) => {
                let mut bytes = vec![0; usize::try_from(len).ok()?];
                file.read_exact_at(&mut bytes, offset).ok()?;
                Some(bytes)
            }
            Data::Memory(bytes) => bytes
                .get(offset as usize..)?
                .get(..len as usize)
                .map(<[u8]>::to_vec),
        }
    }

    /// The aligned words in all segments that are addresses of code, ascending: pointers to functions,
    /// entries of tables, and what relocations add (which lie in a segment, too). Code and numbers that
    /// look like it are among them. `None` if the file can't be read, or holds too many.
    pub(super) fn code_addresses(&self) -> Option<Vec<u64>> {
        const AT_ONCE: u64 = 1 << 20;
        // 32 MiB of addresses.
        const MOST: usize = 4 << 20;
        // Linkers make one or two.
        const MOST_SEGMENTS: usize = 16;
        let code: Vec<&Segment> = self.segments.iter().filter(|s| s.execute).collect();
        if code.len() > MOST_SEGMENTS {
            return None;
        }
        let is_code = |address: u64| {
            let mut all = code.iter();
            all.any(|s| address >= s.address && address - s.address < s.len)
        };
        let mut found = Vec::new();
        for segment in &self.segments {
            let mut at = segment.address.checked_next_multiple_of(8)?;
            let end = segment.address + segment.len;
            while at < end {
                let bytes = self.read(at, AT_ONCE.min(end - at))?;
                let words = bytes
                    .as_chunks()
                    .0
                    .iter()
                    .map(|word| u64::from_le_bytes(*word));
                found.extend(words.filter(|&word| is_code(word)));
                if found.len() > MOST {
                    return None;
                }
                at = at.saturating_add(AT_ONCE);
            }
        }
        found.sort_unstable();
        found.dedup();
        Some(found)
    }

    /// The segment with `address`, if its bytes there are in the file.
    pub(super) fn at(&self, address: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|segment| address >= segment.address && address - segment.address < segment.len)
    }
}
