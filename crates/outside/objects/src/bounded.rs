//! Files that are parsed, and how much of them may be read. The program names the files that are
//! opened here, and a file may claim any size: a sparse file of terabytes takes a few kilobytes of
//! the disk, and a compressed section of kilobytes may unpack to as much. Used wherever this crate
//! opens an ELF file; must not read by itself what was not queried.

use object::read::elf::ElfFile64;
use object::{LittleEndian, ReadCache, ReadRef};
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fs::File;
use std::ops::Range;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::sync::atomic::{AtomicU64, Ordering};

/// An ELF file that is being read; sections are read when they are needed.
pub(crate) type Elf<'a> = ElfFile64<'a, LittleEndian, &'a FileBytes>;

/// The most bytes that are read of one file, unpacked ones included. The debug information of the
/// largest programs (Chromium, the Rust compiler) has 1 to 2 GiB.
const MOST_OF_A_FILE: u64 = 4 << 30;
/// How many bytes a file may give for each byte that it takes on its disk. File systems compress
/// debug information to about a third, and compilers to about a quarter.
const GAIN: u64 = 32;
/// A file may give this much however little it takes.
const LEAST_ALLOWANCE: u64 = 64 << 20;

/// The most bytes of debug sections and symbols that are kept until the tool ends, of all files.
const MOST_KEPT: u64 = 8 << 30;
/// The most bytes that are read only to compute checksums, of all files.
const MOST_CHECKED: u64 = 8 << 30;

/// What this process keeps of debug sections and symbols.
pub(crate) static KEPT: Budget = Budget::of(MOST_KEPT);
/// What this process reads to compute checksums.
pub(crate) static CHECKED: Budget = Budget::of(MOST_CHECKED);

/// A number of bytes that can be taken once.
#[derive(Debug)]
pub(crate) struct Budget(AtomicU64);

impl Budget {
    pub(crate) const fn of(bytes: u64) -> Self {
        Self(AtomicU64::new(bytes))
    }

    /// Takes `bytes`. False, and nothing is taken, if fewer are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let less = |left: u64| left.checked_sub(bytes);
        let order = Ordering::Relaxed;
        self.0.fetch_update(order, order, less).is_ok()
    }

    /// Gives back what was taken.
    pub(crate) fn give_back(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// What was taken of [`KEPT`] for something that goes before the tool ends.
#[derive(Debug, Default)]
pub(crate) struct Share(u64);

impl Share {
    /// Takes `bytes` more. False, and nothing is taken, if fewer are left.
    pub(crate) fn grow(&mut self, bytes: u64) -> bool {
        let is_taken = KEPT.take(bytes);
        self.0 += if is_taken { bytes } else { 0 };
        is_taken
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        KEPT.give_back(self.0);
    }
}

/// The bytes of a file for a parser, up to an allowance.
#[derive(Debug)]
pub(crate) struct FileBytes {
    cache: ReadCache<File>,
    /// The same file, for what is not to stay in the cache.
    file: Option<File>,
    left: Cell<u64>,
    /// Where windows begin that were read.
    windows: RefCell<BTreeSet<u64>>,
}

/// Names are read so many bytes at a time. The cache reads each name with two system calls, and a
/// library has thousands.
const WINDOW: u64 = 64 << 10;
/// Longer names are left to the cache, in bytes.
const LONGEST_NAME: u64 = 4 << 10;

impl FileBytes {
    /// All that may be read of `file`.
    pub(crate) fn of(file: File) -> Self {
        let allowance = allowance(&file);
        Self::up_to(file, allowance)
    }

    fn up_to(file: File, allowance: u64) -> Self {
        Self {
            file: file.try_clone().ok(),
            cache: ReadCache::new(file),
            left: Cell::new(allowance),
            windows: RefCell::default(),
        }
    }

    /// The bytes from the start of `range` until `delimiter`, from the window of the file that has
    /// them. `None` if they are not in it, or if the allowance is too small for it.
    fn in_window(&self, range: &Range<u64>, delimiter: u8) -> Option<&[u8]> {
        let start = range.start & !(WINDOW - 1);
        let bytes = (&self.cache).len().ok()?.checked_sub(start)?;
        let bytes = bytes.min(WINDOW + LONGEST_NAME);
        if !self.windows.borrow().contains(&start) {
            if !self.take(bytes) {
                return None;
            }
            self.windows.borrow_mut().insert(start);
        }
        let window = self.cache.read_bytes_at(start, bytes).ok()?;
        let end = range.end.min(start + bytes) - start;
        let rest = window.get((range.start - start) as usize..end as usize)?;
        let length = rest.iter().position(|&byte| byte == delimiter)?;
        rest.get(..length)
    }

    /// These bytes of the file, taken from the allowance, as the caller's own: what it keeps would be there
    /// twice otherwise.
    pub(crate) fn own(&self, offset: u64, size: u64) -> Option<Vec<u8>> {
        let is_in_file = offset.saturating_add(size) <= (&self.cache).len().ok()?;
        if !is_in_file || !self.take(size) {
            return None;
        }
        let mut bytes = vec![0; usize::try_from(size).ok()?];
        self.file.as_ref()?.read_exact_at(&mut bytes, offset).ok()?;
        Some(bytes)
    }

    /// Whether so many bytes of the allowance are left.
    pub(crate) fn has_left(&self, bytes: u64) -> bool {
        bytes <= self.left.get()
    }

    /// Takes `bytes` of the allowance. False, and nothing is taken, if fewer are left.
    pub(crate) fn take(&self, bytes: u64) -> bool {
        let left = self.left.get().checked_sub(bytes);
        if let Some(left) = left {
            self.left.set(left);
        }
        left.is_some()
    }
}

impl<'a> ReadRef<'a> for &'a FileBytes {
    fn len(self) -> Result<u64, ()> {
        (&self.cache).len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'a [u8], ()> {
        let is_in_file = offset.saturating_add(size) <= self.len()?;
        // The cache makes room for all of it before it reads.
        if !is_in_file || !self.take(size) {
            return Err(());
        }
        self.cache.read_bytes_at(offset, size)
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'a [u8], ()> {
        let bytes = match self.in_window(&range, delimiter) {
            Some(bytes) => bytes,
            // The cache reads 4 KiB at most.
            None => self.cache.read_bytes_at_until(range, delimiter)?,
        };
        self.take(bytes.len() as u64 + 1).then_some(bytes).ok_or(())
    }
}

/// The number of bytes that may be read of `file`; 0 if it can't be told.
pub(crate) fn allowance(file: &File) -> u64 {
    let Ok(about) = file.metadata() else {
        return 0;
    };
    allowance_of(about.len(), about.blocks())
}

/// The same for a file of this length that takes `blocks` of 512 bytes.
fn allowance_of(len: u64, blocks: u64) -> u64 {
    // A file with contents and without blocks is on a file system that does not count them.
    let on_disk = match blocks {
        0 => len,
        _ => len.min(blocks.saturating_mul(512)),
    };
    let allowance = on_disk.saturating_mul(GAIN).max(LEAST_ALLOWANCE);
    allowance.min(MOST_OF_A_FILE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_gives_more_the_more_it_takes() {
        let (gib, tib) = (1 << 30, 1 << 40);
        for (len, blocks, wanted) in [
            (100, 8, LEAST_ALLOWANCE),
            (8 * tib, 8, LEAST_ALLOWANCE),
            (8 * tib, 0, MOST_OF_A_FILE),
            (2 * gib, 2 * gib / 512, MOST_OF_A_FILE),
            // On a file system that compresses it to a tenth.
            (gib, gib / 5120, gib / 5120 * 512 * GAIN),
            (u64::MAX, u64::MAX, MOST_OF_A_FILE),
        ] {
            assert_eq!(allowance_of(len, blocks), wanted, "{len} in {blocks}");
        }
    }

    #[test]
    fn nothing_is_read_beyond_the_allowance() {
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &[7; 300]).expect("written");
        let bytes = FileBytes::up_to(file, 256);
        assert_eq!(bytes.read_bytes_at(0, 300), Err(()));
        assert_eq!(bytes.read_bytes_at(0, 200), Ok(&[7; 200][..]));
        assert_eq!(bytes.read_bytes_at(200, 100), Err(()));
        assert_eq!(bytes.read_bytes_at(200, 56), Ok(&[7; 56][..]));
        assert_eq!(bytes.read_bytes_at(0, 1), Err(()));
    }

    #[test]
    fn names_of_one_place_are_read_once() {
        let names: Vec<u8> = (0..20_000)
            .flat_map(|i| format!("n{i}\0").into_bytes())
            .collect();
        let len = names.len() as u64;
        assert!(len > WINDOW, "there are two windows");
        let mut file = tempfile::tempfile().expect("a file");
        std::io::Write::write_all(&mut file, &names).expect("written");
        let bytes = FileBytes::up_to(file, 10 << 20);
        let (mut at, mut wanted) = (0, 10 << 20);
        for i in 0..20_000 {
            let name = format!("n{i}");
            assert_eq!(
                bytes.read_bytes_at_until(at..len, 0),
                Ok(name.as_bytes()),
                "at {at}"
            );
            at += name.len() as u64 + 1;
            wanted -= name.len() as u64 + 1;
        }
        let windows = len.div_ceil(WINDOW);
        let overlaps = (windows - 1) * LONGEST_NAME;
        assert!(len % WINDOW > LONGEST_NAME, "only inner windows overlap");
        wanted -= len + overlaps;
        assert_eq!(bytes.left.get(), wanted, "each window was read once");
        assert_eq!(bytes.read_bytes_at_until(0..1, 0), Err(()), "no delimiter");
    }

    #[test]
    fn a_section_of_terabytes_in_a_sparse_file_is_not_made_room_for() {
        let file = tempfile::tempfile().expect("a file");
        if file.set_len(8 << 40).is_err() {
            println!("SKIP: the file system has no files of this size");
            return;
        }
        std::os::unix::fs::FileExt::write_all_at(&file, &[7; 64], 0).expect("written");
        let bytes = FileBytes::of(file);
        assert_eq!(bytes.read_bytes_at(0, 64), Ok(&[7; 64][..]));
        assert_eq!(bytes.read_bytes_at(0, 2 << 30), Err(()));
    }

    #[test]
    fn a_budget_is_spent_once() {
        let budget = Budget::of(10);
        assert!(budget.take(7) && !budget.take(4) && budget.take(3) && !budget.take(1));
    }
}
