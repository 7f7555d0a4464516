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

    /// The segment with `address`, if its bytes there are in the file.
    pub(super) fn at(&self, address: u64) -> Option<&Segment> {
        self.segments
            .iter()
            .find(|segment| address >= segment.address && address - segment.address < segment.len)
    }
}
