//! The registry: a small memory file through which every process image that loads the runtime
//! gets a segment of its own. The tool keeps some segments ready and publishes them. A runtime
//! claims the next one without waiting for the tool and without keeping a descriptor open, and
//! the tool finds the claim later.
//!
//! The layout types here are used by both sides; `images.rs` is the tool's side. A
//! process may be killed at any point of a claim, so the tool accepts a claim only once the
//! process number is written, which is written last.

use crate::layout::PAGE;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The first eight bytes of every registry. Version and size follow, as in a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDRREG");
/// Entries for images; an entry is reused once the tool has dropped its segment.
pub const ENTRIES: u32 = 1 << 12;
/// Bytes of a registry.
pub const BYTES: usize = PAGE + ENTRIES as usize * size_of::<RegistryEntry>();

/// Option bit: children of the first process are followed.
pub const OPTION_FOLLOW: u32 = 1;

/// The header of a registry: its identification, options and counters.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`](crate::layout::VERSION) of the segments.
    pub version: AtomicU32,
    /// [`OPTION_FOLLOW`].
    pub options: AtomicU32,
    /// [`BYTES`] of the writer.
    pub total: AtomicU64,
    /// The tool's process, which owns the descriptors that the entries name.
    pub tool: AtomicU32,
    /// The process that the tool started: without [`OPTION_FOLLOW`] the only
    /// one that may claim.
    pub root: AtomicU32,
    /// Serial number after the last entry that is ready to be claimed.
    pub ready: AtomicU32,
    /// Serial number of the next entry to claim, at most `ready`.
    pub next: AtomicU32,
    /// Images that found no entry ready.
    pub missed: AtomicU32,
    /// Images that stayed passive because the tool knows their process by another number
    /// (another process namespace).
    pub foreign: AtomicU32,
}

/// One segment that an image can claim.
#[repr(C, align(64))]
pub struct RegistryEntry {
    /// The image's process; written last, 0 before that.
    pub process: AtomicU32,
    /// The tool's file descriptor of the segment.
    pub descriptor: AtomicU32,
    /// 1 + the serial number of the image that it was forked from; 0 if it executed a program.
    pub origin: AtomicU32,
    /// The epoch of the origin's segment that began with the fork.
    pub epoch: AtomicU32,
    /// 1 if the segment could not be opened or mapped.
    pub refused: AtomicU32,
    /// The number of the parent process.
    pub parent: AtomicU32,
    /// When it was claimed, in nanoseconds of the monotonic clock.
    pub time: AtomicU64,
}

/// A mapped registry, seen through its layout.
#[derive(Clone, Copy)]
pub struct RegistryView(NonNull<u8>);

impl RegistryView {
    /// # Safety
    /// [`BYTES`] bytes from `base` must be mapped, readable and writable, for as
    /// long as the view or a copy of it is used.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self(base)
    }

    /// The address at which the registry is mapped.
    pub const fn base(&self) -> NonNull<u8> {
        self.0
    }

    /// The header.
    pub const fn header(&self) -> &Header {
        // SAFETY: it lies at the start, and consists of atomics.
        unsafe { self.0.cast::<Header>().as_ref() }
    }

    /// The entry with serial number `serial`.
    pub const fn entry(&self, serial: u32) -> &RegistryEntry {
        let offset = PAGE + (serial % ENTRIES) as usize * size_of::<RegistryEntry>();
        // SAFETY: the remainder keeps it within the mapping; it consists of
        // atomics and the offset is a multiple of its size.
        unsafe { self.0.byte_add(offset).cast::<RegistryEntry>().as_ref() }
    }

    /// Claims the next entry that is ready, and returns its serial number.
    pub fn claim(&self) -> Option<u32> {
        let header = self.header();
        let taken = header
            .next
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, |next| {
                // Serial numbers may wrap; their difference does not.
                let ready = header.ready.load(Ordering::Acquire);
                (ready.wrapping_sub(next) as i32 > 0).then(|| next.wrapping_add(1))
            });
        if taken.is_err() {
            header.missed.fetch_add(1, Ordering::Relaxed);
        }
        taken.ok()
    }
}
