//! The payload of a block of modules: the files that were loaded into the process.

use crate::fields::{Fields, Parse};

/// A part of a loaded file's address range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// The first address.
    pub start: u64,
    /// Bytes in memory.
    pub bytes: u64,
    /// Offset in the file.
    pub file_offset: u64,
    /// Permissions as in ELF: 1 execute, 2 write, 4 read.
    pub flags: u32,
}

impl Segment {
    /// Whether all its addresses and offsets, rounded to pages, are in an address space and in a
    /// file. A recorder writes no other ones, so no reader need expect them.
    fn is_possible(&self) -> bool {
        const MOST: u64 = i64::MAX as u64 - (1 << 16);
        let ends_by = |first: u64, most: u64| {
            let end = first.checked_add(self.bytes);
            end.is_some_and(|end| end <= most)
        };
        ends_by(self.start, u64::MAX - (1 << 16)) && ends_by(self.file_offset, MOST)
    }
}

/// A loaded file, borrowed by the recorder.
#[derive(Clone, Copy, Debug)]
pub struct ModuleParts<'a> {
    /// The bias that is added to the file's addresses.
    pub base: u64,
    /// The path of the file.
    pub path: &'a [u8],
    /// Its build ID; empty if there is none.
    pub build_id: &'a [u8],
}

/// Writes the modules of one block: each is begun, gets its segments, and ends when the next is
/// begun or the block is done.
#[derive(Debug)]
pub struct ModuleWriter<'a> {
    fields: Fields<'a>,
    whole: usize,
    count: u32,
}

impl<'a> ModuleWriter<'a> {
    /// Writes into `to`.
    pub const fn new(to: &'a mut [u8]) -> Self {
        Self {
            fields: Fields::new(to),
            whole: 0,
            count: 0,
        }
    }

    /// Adds a module; false if there is no room, and then it is left out.
    pub fn add(
        &mut self,
        module: &ModuleParts<'_>,
        segments: impl Iterator<Item = Segment> + Clone,
    ) -> bool {
        self.fields.u64(module.base);
        self.fields.bytes(module.path);
        self.fields.bytes(module.build_id);
        self.fields.u32(segments.clone().count() as u32);
        for segment in segments {
            self.fields.u64(segment.start);
            self.fields.u64(segment.bytes);
            self.fields.u64(segment.file_offset);
            self.fields.u32(segment.flags);
        }
        if self.fields.fits() {
            self.whole = self.fields.len();
            self.count += 1;
        }
        self.fields.fits()
    }

    /// How many bytes and modules were written.
    pub const fn done(&self) -> (usize, u32) {
        (self.whole, self.count)
    }
}

/// A loaded file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Module {
    /// The bias that is added to the file's addresses.
    pub base: u64,
    /// The path of the file.
    pub path: String,
    /// Its build ID; empty if there is none.
    pub build_id: Vec<u8>,
    /// Its loaded parts.
    pub segments: Vec<Segment>,
}

impl Module {
    pub(crate) fn parse_all(payload: &[u8], count: u32) -> Option<Vec<Self>> {
        let mut fields = Parse(payload);
        let mut all = Vec::new();
        for _ in 0..count {
            let mut module = Self {
                base: fields.u64()?,
                path: String::from_utf8_lossy(fields.bytes()?).into_owned(),
                build_id: fields.bytes()?.to_vec(),
                segments: Vec::new(),
            };
            for _ in 0..fields.u32()? {
                let segment = Segment {
                    start: fields.u64()?,
                    bytes: fields.u64()?,
                    file_offset: fields.u64()?,
                    flags: fields.u32()?,
                };
                if !segment.is_possible() {
                    return None;
                }
                module.segments.push(segment);
            }
            all.push(module);
        }
        Some(all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_module_that_does_not_fit_is_left_out_whole() {
        let mut memory = [0; 150];
        let mut writer = ModuleWriter::new(&mut memory);
        let segment = Segment {
            start: 0x1000,
            bytes: 16,
            file_offset: 0,
            flags: 5,
        };
        let parts = ModuleParts {
            base: 0x1000,
            path: b"/bin/true",
            build_id: &[1, 2, 3],
        };
        assert!(writer.add(&parts, [segment].into_iter()));
        assert!(!writer.add(&parts, [segment; 3].into_iter()));
        let (bytes, count) = writer.done();
        let modules = Module::parse_all(&memory[..bytes], count).unwrap();
        assert_eq!(modules.len(), 1);
        assert_eq!(modules[0].segments, [segment]);
        assert_eq!(modules[0].path, "/bin/true");
    }
}
