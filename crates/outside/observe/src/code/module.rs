//! All the code of one ELF file with the bounds of its functions, for those who
//! plan changes of it.

use super::image;
use object::{Object, ObjectSegment, SegmentFlags, elf};
use std::path::Path;

/// Files above this are not read.
const LARGEST: u64 = 256 << 20;

/// Where there is nothing between segments, an `int3`.
const NOTHING: u8 = 0xcc;
const PAGE: u64 = 4096;

/// A segment of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CodeSegment {
    /// Its address in the file's own addresses.
    pub address: u64,
    /// Where it begins in the file.
    pub offset: u64,
    /// Bytes of it.
    pub len: u64,
}

/// The code of a file, in the file's own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCode {
    /// What identifies the build; nothing where the linker was not asked for it.
    pub build_id: Vec<u8>,
    /// Where the code begins.
    pub address: u64,
    /// The code, from the first segment to the last: where there is none between them, `int3`.
    pub bytes: Vec<u8>,
    /// What it consists of, ascending: mostly one, but linkers and BOLT may make more.
    pub segments: Vec<CodeSegment>,
    /// Start and end of each function, ascending, not overlapping.
    pub functions: Vec<(u64, u64)>,
    /// Whether functions of it may catch exceptions, so that control comes to places to which
    /// no instruction leads.
    pub catches: bool,
    /// Whether it has sequences that the kernel has begin anew when their thread has been
    /// elsewhere meanwhile (`rseq`).
    pub restarts: bool,
}

impl ModuleCode {
    /// Reads the file; `None` if it is no ELF file with code, or too large.
    #[must_use]
    pub fn read(file: &Path) -> Option<Self> {
        if std::fs::metadata(file).ok()?.len() > LARGEST {
            return None;
        }
        let data = std::fs::read(file).ok()?;
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

    /// The address of what is mapped from this offset in the file, if that is code: a mapping
    /// begins where a page does.
    #[must_use]
    pub fn address_at(&self, offset: u64) -> Option<u64> {
        let down = |n: u64| n & !(PAGE - 1);
        let of = |s: &&CodeSegment| (down(s.offset)..s.offset + s.len).contains(&offset);
        let segment = self.segments.iter().find(of)?;
        Some(down(segment.address) + (offset - down(segment.offset)))
    }
}
