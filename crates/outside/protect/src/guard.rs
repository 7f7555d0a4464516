//! Pages of code with instructions that order memory, of which isolated threads may execute the
//! loops without such an instruction: small programs have all of their code on such a page. A page
//! is examined when a thread is met there, since that means reading the bounds of functions from
//! the file. Called by `keeper`; `sunder_rewrite::closed_points` says which instructions are
//! forbidden.
//!
//! A page in the program's memory must be as it is in the file, and is not changed: native threads
//! execute it. Workers, which are processes of their own, put `int3` into their copy.

use super::functions::Functions;
use super::image::is_systems;
use super::shared::Shared;
use object::elf::PF_X;
use object::{Object, ObjectSegment, SegmentFlags};
use std::collections::BTreeSet;
use std::io::Read;
use std::path::Path;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use sunder_access::{Mapping, PAGE, ProcessId};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::proc;
use sunder_rewrite::Function;
use sunder_wire::isolation::{GUARDED, GuardedPage};
use sunder_wire::tracking::mode;

/// Larger files, in bytes, are not read: that would take too long.
const LARGEST: u64 = 64 << 20;
/// Most pages that are examined in one run.
const MOST: usize = 256;

/// The pages that were examined, and those that are guarded.
#[derive(Debug, Default)]
pub struct Guards {
    requested: BTreeSet<u64>,
    /// The pages in the control file's table, in the same order.
    seen: Vec<PageContents>,
}

/// The contents of a page of code.
#[derive(Debug, PartialEq, Eq)]
struct PageContents {
    path: String,
    /// Offset of the page in the file.
    offset: u64,
    bytes: Vec<u8>,
}

impl Guards {
    /// Guards the page of an address, if that is possible: a thread stood there, or its episode
    /// ended there. Does nothing if shared pages are found by page faults, as then every page that
    /// two threads write becomes private.
    pub fn request(&mut self, process: i32, shared: &Shared, address: u64) {
        let page = address & !(PAGE - 1);
        if page == 0 || shared.tracking.mode.load(Relaxed) != mode::OFF {
            return;
        }
        let place = shared.guarded_count.load(Relaxed) as usize;
        let Some(kept) = shared.guarded.get(place).filter(|_| place < GUARDED) else {
            return;
        };
        if self.requested.len() >= MOST || !self.requested.insert(page) {
            return;
        }
        let Some(seen) = PageContents::on(process, page) else {
            return;
        };
        let Some(points) = seen.points(ProcessId(process.unsigned_abs())) else {
            return;
        };
        kept.address.store(page, SeqCst);
        for (to, from) in kept.points.iter().zip(points) {
            to.store(from, Relaxed);
        }
        // If the mapping changes from here on, the library finds the page in the table and takes it
        // out.
        if PageContents::on(process, page).as_ref() != Some(&seen) {
            kept.address.store(0, SeqCst);
            return;
        }
        self.seen.push(seen);
        // Workers read the count last, so the page is complete by then.
        shared.guarded_count.store(place as u32 + 1, SeqCst);
    }

    /// Takes pages out of the table that are not mapped as they were, since changes of mappings
    /// were not seen before the hooks were in place. No thread may be isolated.
    pub fn look_again(&self, process: i32, shared: &Shared) {
        for (kept, seen) in shared.guarded.iter().zip(&self.seen) {
            let page = kept.address.load(SeqCst);
            if page != 0 && PageContents::on(process, page).as_ref() != Some(seen) {
                kept.address.store(0, SeqCst);
            }
        }
    }
}

/// Whether an isolated thread may execute the instruction at this address because its page is
/// guarded.
pub fn is_open(shared: &Shared, address: u64) -> bool {
    let count = shared.guarded_count.load(Relaxed) as usize;
    let at = address % PAGE;
    let open = |page: &GuardedPage| {
        let bits = page.points.get((at / 64) as usize);
        bits.is_some_and(|bits| bits.load(Relaxed) >> (at % 64) & 1 == 0)
    };
    let page = address - at;
    let pages = shared.guarded.iter().take(count);
    pages.filter(|g| g.address.load(Relaxed) == page).any(open)
}

impl PageContents {
    /// Reads a page of a process; `None` if it is no code, or code that must not be executed in
    /// isolation.
    fn on(process: i32, page: u64) -> Option<Self> {
        let process = ProcessId(process.unsigned_abs());
        let mappings = proc::mappings(process).ok()?;
        let contains = |m: &&Mapping| {
            let start = m.span.start.0;
            (start..start + m.span.len).contains(&page)
        };
        let mapping = mappings.iter().find(contains)?;
        let path = Path::new(&mapping.path);
        let is_fit = mapping.execute && !mapping.write && path.is_absolute() && !is_systems(path);
        is_fit.then_some(())?;
        Some(Self {
            path: mapping.path.clone(),
            offset: mapping
                .file_offset
                .checked_add(page - mapping.span.start.0)?,
            bytes: memory(process, page)?,
        })
    }

    /// The bytes of the page that must not be executed, one bit each; `None` if nothing on the page
    /// may be executed.
    fn points(&self, process: ProcessId) -> Option<[u64; 64]> {
        let file = ForeignFiles::of(process).open(self.path.as_ref()).ok()?;
        let mut bytes = Vec::new();
        file.take(LARGEST + 1).read_to_end(&mut bytes).ok()?;
        if bytes.len() as u64 > LARGEST {
            return None;
        }
        let in_file = bytes.get(usize::try_from(self.offset).ok()?..)?;
        if in_file.get(..PAGE as usize)? != self.bytes {
            return None;
        }
        in_the_file(&bytes, self.offset)
    }
}

/// The same for the page at `offset` in the file's `bytes`.
fn in_the_file(bytes: &[u8], offset: u64) -> Option<[u64; 64]> {
    let file = object::File::parse(bytes).ok()?;
    // Restartable sequences (rseq) depend on the thread's CPU.
    if file.section_by_name("__rseq_cs").is_some() {
        return None;
    }
    let is_code =
        |flags| matches!(flags, SegmentFlags::Elf { p_flags, .. } if p_flags.contains(PF_X));
    let (start, first, length) = file
        .segments()
        .filter(|s| is_code(s.flags()))
        .map(|s| (s.address(), s.file_range().0, s.file_range().1))
        .find(|(_, first, length)| {
            offset.saturating_add(PAGE) > *first && offset < first.saturating_add(*length)
        })?;
    let page = start.wrapping_add(offset.wrapping_sub(first));
    let end = start.checked_add(length)?;
    let mut functions = Vec::new();
    for &[from, to] in Functions::of(&file).known()? {
        if from >= page.saturating_add(PAGE) || to <= page {
            continue;
        }
        if from < start || to > end || to < from {
            return None;
        }
        let at = first.checked_add(from - start)?;
        functions.push(Function {
            address: from,
            code: range(bytes, at, to - from)?,
        });
    }
    let on_page = range(bytes, offset, PAGE)?;
    sunder_rewrite::closed_points(page, on_page, &functions)
}

/// The `len` bytes from `at` on; `None` if they are not all there.
fn range(bytes: &[u8], at: u64, len: u64) -> Option<&[u8]> {
    let end = usize::try_from(at.checked_add(len)?).ok()?;
    bytes.get(usize::try_from(at).ok()?..end)
}

/// The bytes of the page in the program's memory.
fn memory(process: ProcessId, page: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0u8; PAGE as usize];
    let local = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    let remote = libc::iovec {
        iov_base: page as *mut _,
        iov_len: bytes.len(),
    };
    // SAFETY: the local part is valid for the whole page; the kernel checks the remote address.
    let read = unsafe {
        libc::process_vm_readv(
            process.0 as i32,
            &raw const local,
            1,
            &raw const remote,
            1,
            0,
        )
    };
    (read == bytes.len() as isize).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_leaves_the_table_when_its_contents_change() {
        let shared = Shared::new().expect("memory files exist");
        let process = std::process::id() as i32;
        let page = in_the_file as *const () as u64 & !(PAGE - 1);
        let seen = || PageContents::on(process, page).expect("code of this program");
        let mut guards = Guards::default();
        // As it is, from another offset of the file, and with another byte.
        guards.seen.extend([seen(), seen(), seen()]);
        guards.seen[1].offset += PAGE;
        guards.seen[2].bytes[17] ^= 1;
        for kept in shared.guarded.iter().take(4) {
            kept.address.store(page, Relaxed);
        }
        // Entries beyond those that were examined are not looked at.
        guards.look_again(process, &shared);
        let left = shared.guarded.iter().take(4);
        let left: Vec<u64> = left.map(|g| g.address.load(Relaxed)).collect();
        assert_eq!(left, [page, 0, 0, page]);
        assert!(
            PageContents::on(process, left.as_ptr() as u64 & !(PAGE - 1)).is_none(),
            "no code"
        );
    }

    /// A program header of code, at these places.
    fn elf_with_code(offset: u64, address: u64, len: u64) -> Vec<u8> {
        let mut bytes = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0];
        bytes.resize(16, 0);
        // A shared object for x86-64; the program header follows, and there are no sections.
        bytes.extend([3, 0, 62, 0, 1, 0, 0, 0]);
        for number in [0, 64, 0] {
            bytes.extend(u64::to_le_bytes(number));
        }
        bytes.extend([0, 0, 0, 0, 64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
        bytes.extend([1, 0, 0, 0, 5, 0, 0, 0]);
        for number in [offset, address, 0, len, len, PAGE] {
            bytes.extend(number.to_le_bytes());
        }
        bytes.resize(2 * PAGE as usize, 0);
        bytes
    }

    #[test]
    fn code_beyond_the_end_of_the_address_space_is_not_executed() {
        for (offset, address, len) in [
            (u64::MAX, 0, u64::MAX),
            (0, u64::MAX, u64::MAX),
            (PAGE, u64::MAX - 10, PAGE),
            (0, 0, u64::MAX),
        ] {
            let bytes = elf_with_code(offset, address, len);
            assert!(object::File::parse(&*bytes).is_ok(), "an ELF file");
            for at in [0, PAGE, u64::MAX - 5] {
                assert_eq!(in_the_file(&bytes, at), None);
            }
        }
    }

    #[test]
    fn ranges_are_within_the_bytes() {
        assert_eq!(range(&[1, 2, 3], 1, 2), Some(&[2, 3][..]));
        assert_eq!(range(&[1, 2, 3], 2, 2), None);
        assert_eq!(range(&[1, 2, 3], u64::MAX, 2), None);
    }
}
