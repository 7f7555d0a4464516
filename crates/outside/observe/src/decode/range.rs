//! Where the decoder gets code from.

use std::hash::Hasher;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use sunder_access::{CodeAddress, ProcessId};

/// Hashes keys of ranges, which are counted up and nobody chooses: no defence
/// against crafted keys is needed, and the lookup is on every sample's way.
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
        // 2^64 by the golden ratio: consecutive numbers are spread evenly.
        let spread = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = spread ^ spread >> 32;
    }
}

/// Gives the code around an address of a process.
pub trait CodeSource {
    /// The function that holds `at`, or at least some code from `at` on.
    /// Asked for every sample, so it should answer from a cache.
    fn function(&mut self, process: ProcessId, at: CodeAddress) -> Option<Arc<CodeRange>>;
}

/// Names a range for as long as the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct RangeId(u64);

/// A piece of a process's code, as it was executed.
#[derive(Debug)]
pub struct CodeRange {
    id: RangeId,
    /// Where it lies in the process.
    pub start: CodeAddress,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Whether an instruction begins at `start`, as at a function's.
    pub exact_start: bool,
    /// Addresses in it, other than `start`, at which control may arrive from
    /// elsewhere: by jumps of other functions or through jump tables. Direct
    /// jumps within the range need not be listed.
    pub entries: Vec<CodeAddress>,
    /// Whether `entries` holds the targets of the range's own indirect jumps;
    /// if not and there are any, nothing is concluded about what was executed
    /// before a sample.
    pub tables_known: bool,
    /// Whether these bytes stay what they are; code made at run time does not.
    pub stable: bool,
}

impl CodeRange {
    /// Code that stays, without entries from elsewhere.
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

    /// The position of `at` in the bytes, if it is one. Bytes that would go on beyond
    /// the last address are nobody's code, and have none.
    pub(crate) fn offset_of(&self, at: CodeAddress) -> Option<u32> {
        self.start.0.checked_add(self.bytes.len() as u64)?;
        let offset = at.0.checked_sub(self.start.0)?;
        (offset < self.bytes.len() as u64)
            .then(|| u32::try_from(offset).ok())
            .flatten()
    }
}
