//! All the code of one ELF file with the bounds of its functions, for planning changes of the code.

use super::image;
use object::{Object, ObjectSegment, SegmentFlags, elf};
use std::fs::File;
use std::io::Read;
use sunder_access::PAGE;

/// Files above this are not read.
const LARGEST: u64 = 256 << 20;

/// Fills gaps between segments: an `int3`.
const NOTHING: u8 = 0xcc;

/// A segment of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSegment {
    /// Its address in the file's address space.
    pub address: u64,
    /// Its offset in the file.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
}

/// The code of a file, in the file's address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCode {
    /// The build ID; empty if the linker wrote none.
    pub build_id: Vec<u8>,
    /// The address of the first byte of `bytes`.
    pub address: u64,
    /// The code, from the first segment to the last; gaps between segments are filled with `int3`.
    pub bytes: Vec<u8>,
    /// Its segments, ascending: mostly one, but linkers and BOLT may make more.
    pub segments: Vec<CodeSegment>,
    /// Start and end of each function, ascending, not overlapping.
    pub functions: Vec<(u64, u64)>,
    /// Whether functions of it may catch exceptions: control then enters at landing pads, to which
    /// no instruction leads.
    pub catches: bool,
    /// Whether it has restartable sequences (`rseq`), which the kernel restarts when their thread
    /// was preempted or moved to another CPU.
    pub restarts: bool,
}

impl ModuleCode {
    /// Reads the file; `None` if it is no ELF file with code, or too large.
    #[must_use]
    pub fn read(file: &File) -> Option<Self> {
        let mut data = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut data).ok()?;
        if data.len() as u64 > LARGEST {
            return None;
        }
        let file = object::File::parse(data.as_slice()).ok()?;
        let runs = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X));
        let mut code: Vec<_> = file.segments().filter(|s| runs(s.flags())).collect();
        code.sort_by_key(ObjectSegment::address);
        let address = code.first()?.address();
        let mut bytes = Vec::new();
        let mut segments = Vec::new();
        for segment in code {
            let from = segment.address().checked_sub(address)?;
            if from > LARGEST || from < bytes.len() as u64 {
                return None;
            }
            bytes.resize(from as usize, NOTHING);
            bytes.extend_from_slice(segment.data().ok()?);
            let (offset, len) = segment.file_range();
            segments.push(CodeSegment {
                address: segment.address(),
                offset,
                len,
            });
        }
        Some(Self {
            build_id: file.build_id().ok()?.unwrap_or_default().to_vec(),
            address,
            bytes,
            segments,
            functions: image::functions(&file),
            catches: file.section_by_name(".gcc_except_table").is_some(),
            restarts: file.section_by_name("__rseq_cs").is_some(),
        })
    }

    /// The address of the bytes that a mapping at this offset of the file begins with, if they are
    /// code: a mapping begins at a page's boundary.
    #[must_use]
    pub fn address_at(&self, offset: u64) -> Option<u64> {
        let down = |n: u64| n & !(PAGE - 1);
        let end = |s: &CodeSegment| s.offset.saturating_add(s.len);
        let of = |s: &&CodeSegment| (down(s.offset)..end(s)).contains(&offset);
        let segment = self.segments.iter().find(of)?;
        down(segment.address).checked_add(offset - down(segment.offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_at_the_end_of_the_address_space_have_addresses_up_to_it() {
        let segment = |address, offset| CodeSegment {
            address,
            offset,
            len: u64::MAX,
        };
        let mut module = ModuleCode {
            build_id: Vec::new(),
            address: 0,
            bytes: Vec::new(),
            segments: vec![segment(0x1000, 3 * PAGE)],
            functions: Vec::new(),
            catches: false,
            restarts: false,
        };
        assert_eq!(module.address_at(4 * PAGE), Some(0x1000 + PAGE));
        assert_eq!(module.address_at(PAGE), None);
        module.segments = vec![segment(u64::MAX, 0)];
        assert_eq!(module.address_at(PAGE - 1), Some(u64::MAX));
        assert_eq!(module.address_at(PAGE), None);
    }
}
