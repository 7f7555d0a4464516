//! The offsets of the segment's regions, and the packed forms of the values in them. Used by
//! the runtime (inside the target) and by the tool.
//!
//! The regions have fixed offsets, so that the runtime's hot path computes an address with one
//! addition. The file is sparse: only the pages that are touched use memory. Any change here
//! raises [`VERSION`].

mod entry;

pub use entry::{
    Entry, EntryState, HOT_NEXT_EPOCH, HOT_WATCHED, MAX_EPOCHS, MAX_SMALL, MAX_THREADS, hot_epoch,
};

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The first eight bytes of every segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"SUNDRSEG");
/// The version of this layout.
pub const VERSION: u32 = 4;

/// Bytes of a page. Regions begin at multiples of it.
pub const PAGE: usize = sunder_access::PAGE_SIZE;

/// The most lines that can be watched for allocations.
pub const MAX_WATCHED: usize = 1024;

/// Logarithm of the heap bytes that one shadow slot covers, a granule of 32 bytes. The C
/// library's blocks are at least 32 bytes apart, so at most one block starts in a granule.
pub const SLOT_SHIFT: u32 = 5;
/// Logarithm of the heap bytes that one shadow chunk covers: 256 KiB.
pub const CHUNK_SHIFT: u32 = 18;
/// The number of shadow slots of a chunk.
pub const CHUNK_SLOTS: usize = 1 << (CHUNK_SHIFT - SLOT_SHIFT);
/// Bytes of a shadow chunk.
pub const CHUNK_BYTES: usize = CHUNK_SLOTS * 8;
/// The most shadow chunks: they cover 32 GiB of heap. Number 0 means "none".
pub const MAX_CHUNKS: u32 = 1 << 17;
/// User-space addresses have 47 bits.
pub const ADDRESS_BITS: u32 = 47;

/// Offset of the [`Header`].
pub const HEADER: usize = 0;
/// Offset of the [`Control`] page.
pub const CONTROL: usize = PAGE;
/// Offset of the [`Status`] page.
pub const STATUS: usize = 2 * PAGE;
/// Offset of the [`Watch`] table.
pub const WATCH: usize = 3 * PAGE;
/// Offset of the start times of the epochs, [`MAX_EPOCHS`] words.
pub const EPOCHS: usize = 0x1_0000;
/// Offset of the [`ThreadRecord`]s.
pub const THREADS: usize = 0x5_0000;
/// Offset of the ring of timer samples.
pub const SAMPLES: usize = 0x10_0000;
/// Offset of the ring of heap events.
pub const EVENTS: usize = 0x50_0000;
/// Offset of the table of large blocks.
pub const LARGE: usize = 0xa0_0000;
/// Offset of the hash index of the call stacks.
pub const STACK_INDEX: usize = 0xe0_0000;
/// Offset of the call stacks.
pub const STACKS: usize = 0x100_0000;
/// Offset of the frames in which threads were created, by thread index.
pub const CREATIONS: usize = 0x300_0000;
/// Offset of the table that gives the shadow chunk of each heap chunk.
pub const TOP: usize = 0x400_0000;
/// Offset of the shadow chunks.
pub const SHADOW: usize = TOP + (4 << (ADDRESS_BITS - CHUNK_SHIFT));
/// Bytes of the whole segment (sparse).
pub const TOTAL: usize = SHADOW + MAX_CHUNKS as usize * CHUNK_BYTES;

const _: () = assert!(WATCH + size_of::<Watch>() <= EPOCHS);
const _: () = assert!(EPOCHS + MAX_EPOCHS as usize * 8 <= THREADS);
const _: () = assert!(THREADS + MAX_THREADS as usize * size_of::<ThreadRecord>() <= SAMPLES);

/// The header of a segment. The tool writes it once, before the target starts.
#[repr(C)]
pub struct Header {
    /// [`MAGIC`].
    pub magic: AtomicU64,
    /// [`VERSION`].
    pub version: AtomicU32,
    /// Bit 0: record the heap.
    pub options: AtomicU32,
    /// [`TOTAL`] of the writer.
    pub total: AtomicU64,
    /// The tool's process, for messages.
    pub tool: AtomicU32,
}

/// Option bit: record the heap.
pub const OPTION_HEAP: u32 = 1;
/// Option bit: keep our variables in the environment, so that programs that the target executes
/// load the runtime too.
pub const OPTION_KEEP_ENVIRONMENT: u32 = 2;

/// The page that the tool writes and the runtime reads at every allocation.
#[repr(C, align(64))]
pub struct Control {
    /// The epoch, in the same bits as in an [`Entry`], and [`HOT_WATCHED`].
    pub hot: AtomicU64,
    _pad: [u64; 7],
    /// Timer samples wanted per second of CPU time; 0 for none.
    pub timer_hz: AtomicU32,
}

/// The runtime's counters. None of them is written on a hot path.
#[repr(C, align(64))]
pub struct Status {
    /// The process that loaded the runtime; 0 before that.
    pub process: AtomicU32,
    /// How many programs loaded the runtime in this process: more than one after an `exec`. All
    /// addresses are those of the last program.
    pub programs: AtomicU32,
    /// A [`Refusal`], if the runtime is passive.
    pub refusal: AtomicU32,
    /// The real-time signal of the timers; 0 if none.
    pub timer_signal: AtomicU32,
    /// Threads that have an index; the next index to give.
    pub threads: AtomicU32,
    /// The next free shadow chunk.
    pub chunks: AtomicU32,
    /// The next free unit of the stack table.
    pub stack_units: AtomicU32,
    /// A bit for each page of the table of large blocks that was ever written.
    pub large_pages: [AtomicU64; 8],
    /// Changes of the table of large blocks.
    pub large_changes: AtomicU64,
    /// Call stacks taken by unwinding.
    pub unwound: AtomicU64,
    /// Call stacks cut short because there was no time to unwind them.
    pub shortened: AtomicU64,
    /// Threads beyond [`MAX_THREADS`].
    pub threads_dropped: AtomicU64,
    /// Blocks that no table had room for.
    pub blocks_dropped: AtomicU64,
    /// Call stacks that the table had no room for.
    pub stacks_dropped: AtomicU64,
    /// Timer samples that the ring had no room for.
    pub samples_dropped: AtomicU64,
    /// Heap events that the ring had no room for.
    pub events_dropped: AtomicU64,
    /// Threads whose timer could not be made.
    pub timers_refused: AtomicU64,
    /// Set once the program has used the timers' signal for itself.
    pub signal_taken: AtomicU64,
    /// Set once the program has confined itself (seccomp).
    pub confined: AtomicU64,
    /// Children that the program has forked, if they are not followed.
    pub forks: AtomicU64,
}

/// Why a runtime is passive although it was loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Refusal {
    /// The segment has another version.
    Version = 1,
    /// No address space for the segment (`ulimit -v`).
    AddressSpace = 2,
    /// The kernel lacks `MADV_WIPEONFORK`: records of a forked child could mix
    /// with the parent's.
    WipeOnFork = 3,
    /// The program runs under Valgrind, which would read the whole segment.
    Valgrind = 4,
}

/// The watched lines. Written by the tool only.
#[repr(C, align(64))]
pub struct Watch {
    /// One bit for each of 32,768 hash values of a page number.
    pub filter: [AtomicU64; 512],
    /// How many of `lines` are valid.
    pub count: AtomicU64,
    /// Line addresses.
    pub lines: [AtomicU64; MAX_WATCHED],
}

/// The filter bit for the page of `address`: index of the word, and bit in it.
#[inline]
pub const fn watch_bit(address: u64) -> (usize, u64) {
    let hash = (address >> 12).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 49;
    ((hash >> 6) as usize, 1 << (hash & 63))
}

/// One thread of the target.
#[repr(C, align(64))]
pub struct ThreadRecord {
    /// Kernel thread id; written last, 0 before that.
    pub tid: AtomicU32,
    /// 1 once the thread has ended.
    pub ended: AtomicU32,
    /// Lowest address of its stack.
    pub stack_low: AtomicU64,
    /// First address after its stack.
    pub stack_high: AtomicU64,
    /// The thread pointer.
    pub fs_base: AtomicU64,
    /// The function given to `pthread_create`; 0 for the first thread.
    pub start_routine: AtomicU64,
    /// When it started, in nanoseconds of the monotonic clock.
    pub started: AtomicU64,
    /// Kernel timer id + 1; 0 without a timer. Used by the runtime only.
    pub timer: AtomicU32,
}

/// A mapped segment, accessed through its layout.
#[derive(Clone, Copy)]
pub struct View {
    base: NonNull<u8>,
}

// SAFETY: all access through a view is to atomics, and the contract of `new` requires that the
// mapping outlives every copy of the view.
unsafe impl Send for View {}
// SAFETY: as above.
unsafe impl Sync for View {}

impl View {
    /// # Safety
    /// `base` must be page-aligned and [`TOTAL`] bytes from it must be mapped,
    /// readable and writable, for as long as the view or a copy of it is used.
    pub const unsafe fn new(base: NonNull<u8>) -> Self {
        Self { base }
    }

    /// The address at which the segment is mapped.
    pub const fn base(&self) -> NonNull<u8> {
        self.base
    }

    /// # Safety
    /// `offset..offset + size_of::<T>()` must lie in the segment, aligned for
    /// `T`, and `T` must consist of atomics only.
    #[inline]
    pub(crate) const unsafe fn at<T>(&self, offset: usize) -> &T {
        // SAFETY: the caller keeps the offset within the mapping and aligned;
        // the mapping is valid by the contract of `new`.
        unsafe { self.base.byte_add(offset).cast::<T>().as_ref() }
    }

    /// The address of `offset`, which must be in the segment.
    pub(crate) fn place(&self, offset: usize) -> *const u8 {
        self.base
            .as_ptr()
            .cast_const()
            .cast::<u8>()
            .wrapping_add(offset)
    }

    /// The header.
    pub const fn header(&self) -> &Header {
        // SAFETY: a fixed offset within the segment.
        unsafe { self.at(HEADER) }
    }

    /// The page that the tool writes for the runtime.
    #[inline]
    pub const fn control(&self) -> &Control {
        // SAFETY: a fixed offset within the segment.
        unsafe { self.at(CONTROL) }
    }

    /// Begins an epoch at `now`, for a fork that follows, and returns its number: blocks that
    /// are recorded with an earlier epoch were there before the fork. If all epochs that forks
    /// may use are used up, it returns the present epoch; then blocks recorded in that epoch
    /// count as allocated after the fork.
    pub fn fork_epoch(&self, now: u64) -> u32 {
        let hot = &self.control().hot;
        loop {
            let seen = hot.load(Ordering::Acquire);
            let epoch = hot_epoch(seen);
            let Some(next) = self.epochs().get(epoch as usize + 1) else {
                return epoch;
            };
            if epoch >= MAX_EPOCHS / 2 {
                return epoch;
            }
            next.store(now, Ordering::Relaxed);
            let new = seen.wrapping_add(HOT_NEXT_EPOCH);
            if hot
                .compare_exchange(seen, new, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
            {
                return epoch + 1;
            }
        }
    }

    /// Empties the tables that describe the target's address space. Called by the runtime when
    /// its process executes another program.
    pub fn forget_target(&self) {
        let status = self.status();
        status.threads.store(0, Ordering::Relaxed);
        status.chunks.store(0, Ordering::Relaxed);
        status.stack_units.store(0, Ordering::Relaxed);
        for word in &status.large_pages {
            word.store(0, Ordering::Relaxed);
        }
        status.large_changes.fetch_add(1, Ordering::Release);
    }

    /// The runtime's counters.
    pub const fn status(&self) -> &Status {
        // SAFETY: a fixed offset within the segment.
        unsafe { self.at(STATUS) }
    }

    /// The watched lines.
    pub const fn watch(&self) -> &Watch {
        // SAFETY: a fixed offset within the segment.
        unsafe { self.at(WATCH) }
    }

    /// Start times of the epochs.
    pub const fn epochs(&self) -> &[AtomicU64; MAX_EPOCHS as usize] {
        // SAFETY: a fixed offset within the segment.
        unsafe { self.at(EPOCHS) }
    }

    /// The threads, by index.
    pub const fn threads(&self) -> &[ThreadRecord; MAX_THREADS as usize] {
        // SAFETY: a fixed offset within the segment.
        unsafe { self.at(THREADS) }
    }

    /// The number of the shadow chunk for the heap chunk that holds `address`. Bits beyond user
    /// space are ignored; no allocator returns such addresses.
    #[inline]
    pub const fn top(&self, address: u64) -> &AtomicU32 {
        let index = address >> CHUNK_SHIFT & ((1 << (ADDRESS_BITS - CHUNK_SHIFT)) - 1);
        // SAFETY: the index was cut to the table's length.
        unsafe { self.at(TOP + index as usize * 4) }
    }

    /// The slot of `address` in shadow chunk `chunk`; `None` if there is no such chunk.
    #[inline]
    pub const fn slot(&self, chunk: u32, address: u64) -> Option<&AtomicU64> {
        if chunk == 0 || chunk >= MAX_CHUNKS {
            return None;
        }
        let slot = (address >> SLOT_SHIFT) as usize & (CHUNK_SLOTS - 1);
        // SAFETY: chunk and slot were brought into range.
        Some(unsafe { self.at(SHADOW + chunk as usize * CHUNK_BYTES + slot * 8) })
    }

    /// The shadow slot of `address`, if its chunk exists.
    #[inline]
    pub fn find_slot(&self, address: u64) -> Option<&AtomicU64> {
        let chunk = self.top(address).load(Ordering::Acquire);
        self.slot(chunk, address)
    }
}
