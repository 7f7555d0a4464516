//! The code that the decoder reads.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sunder_access::{CodeAddress, ProcessId};

/// Hashes the keys of ranges. Keys are counted up, and a target can't choose them, so no
/// defence against crafted keys is needed; and there is a look-up for every sample.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RangeHasher(u64);

impl Hasher for RangeHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // 2^64 divided by the golden ratio: spreads consecutive numbers evenly.
        let spread = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }
}

/// Returns the code around an address of a process.
pub trait CodeSource {
    /// The function that contains `at`, or at least some code from `at` on. Called for every
    /// sample, so it should answer from a cache.
    fn function(&mut self, process: ProcessId, at: CodeAddress) -> Option<Arc<CodeRange>>;
}

/// Identifies a range for the whole run of this program.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RangeId(u64);

/// A piece of a process's code, with the bytes that were executed.
#[derive(Debug)]
pub struct CodeRange {
    id: RangeId,
    /// The address of the first byte in the process.
    pub start: CodeAddress,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether an instruction begins at `start`, as for a function.
    pub exact_start: bool,
    /// Addresses in it, other than `start`, to which control may come from elsewhere: by jumps
    /// of other functions or through jump tables. Direct jumps within the range need not be
    /// listed.
    pub entries: Vec<CodeAddress>,
    /// Whether `entries` contains the targets of the range's own indirect jumps. If it does not
    /// and there are such jumps, nothing is concluded about what was executed before a sample.
    pub tables_known: bool,
    /// Whether these bytes never change; those of code made at run time may.
    pub stable: bool,
}

impl CodeRange {
    /// Code that never changes, without entries from elsewhere.
    pub fn new(start: CodeAddress, bytes: Vec<u8>, exact_start: bool) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self {
            id: RangeId(NEXT.fetch_add(1, Ordering::Relaxed)),
            start,
            bytes,
            exact_start,
            entries: Vec::new(),
            tables_known: false,
            stable: true,
        }
    }

    pub(super) const fn id(&self) -> RangeId {
        self.id
    }

    /// The offset of `at` in the bytes, if it is within them. A range that would extend beyond
    /// the last address has no offsets.
    pub(crate) fn offset_of(&self, at: CodeAddress) -> Option<u32> {
        self.start.0.checked_add(self.bytes.len() as u64)?;
        let offset = at.0.checked_sub(self.start.0)?;
        (offset < self.bytes.len() as u64)
            .then(|| u32::try_from(offset).ok())
            .flatten()
    }
}
