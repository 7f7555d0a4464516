//! All the code of one ELF file with the bounds of its functions, for those who
//! plan changes of it.

use super::image;
use object::{Object, ObjectSegment, SegmentFlags, elf};
use std::path::Path;

/// Files above this are not read.
const LARGEST: u64 = 256 << 20;

/// The code of a file, in the file's own addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModuleCode {
    /// What identifies the build.
    pub build_id: Vec<u8>,
    /// Where the code begins.
    pub address: u64,
    /// The code.
    pub bytes: Vec<u8>,
    /// Start and end of each function, ascending, not overlapping.
    pub functions: Vec<(u64, u64)>,
    /// Whether functions of it may catch exceptions, so that control comes to places to which
    /// no instruction leads.
    pub catches: bool,
}

impl ModuleCode {
    /// Reads the file; `None` if it is no ELF file with a build identifier and
    /// one segment of code.
    #[must_use]
    pub fn read(file: &Path) -> Option<Self> {
        if std::fs::metadata(file).ok()?.len() > LARGEST {
            return None;
        }
        let data = std::fs::read(file).ok()?;
        let file = object::File::parse(data.as_slice()).ok()?;
        let runs = |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(elf::PF_X));
        let mut code = file.segments().filter(|s| runs(s.flags()));
        let (segment, None) = (code.next()?, code.next()) else {
            return None;
        };
        Some(Self {
            build_id: file.build_id().ok()??.to_vec(),
            address: segment.address(),
            bytes: segment.data().ok()?.to_vec(),
            functions: image::functions(&file),
            catches: file.section_by_name(".gcc_except_table").is_some(),
        })
    }
}
