//! One thread's heap: bins of spans. Its owner allocates and frees without synchronisation; other
//! threads use only the shared parts of spans and [`give_remote`]. Contexts: pre-init, normal,
//! post-fork.

mod empty;
mod owners;

pub use owners::give_remote;

use crate::arena;
use crate::block::Block;
use crate::budget::Budget;
use crate::config;
use crate::segments::SLICE;
use crate::span::{Bin, Owner, Span};
use crate::table::{BYTES_OF_BIN, Key, Table};
use core::ptr::null_mut;
use core::sync::atomic::AtomicPtr;
use sunder_access::PAGE_SIZE as PAGE;
use sunder_placement::class;

/// Requests up to this size find their span by one look-up in a table, in bytes.
pub const DIRECT_MOST: usize = 1024;
const DIRECT: usize = DIRECT_MOST / 16 + 1;
/// The largest block that shares a span with others, in bytes.
pub const BLOCK_MOST: usize = 64 << 10;
const CLASSES: usize = class::index(BLOCK_MOST as u64) as usize + 1;
/// Blocks up to this size lie in spans of one slice, in bytes.
const SMALL_MOST: usize = 8 << 10;
/// The number of slices of spans with larger blocks.
const MEDIUM_SLICES: usize = 8;

/// The number of slices of empty spans that a heap keeps, besides the last span of each bin. A
/// program that fills and empties some spans alternately would otherwise make their blocks anew
/// each time. 1 MiB a thread.
const MOST_KEPT: usize = 16;

/// A span without blocks, as a placeholder where a thread has no span.
struct Placeholder(Span);

// SAFETY: no thread writes to a span without blocks.
unsafe impl Sync for Placeholder {}

static PLACEHOLDER: Placeholder = Placeholder(Span::PLACEHOLDER);

fn placeholder() -> *mut Span {
    (&raw const PLACEHOLDER.0).cast_mut()
}

/// Why a bin has no free block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// There is no memory.
    Memory,
    /// The heap's buckets have as much memory as they may take ([`Budget`]).
    Budget,
}

/// Whether no two blocks of so many bytes lie on one line.
fn lines_are_own(block: usize) -> bool {
    block as u64 & (config::line() - 1) == 0
}

/// Bytes of a span's memory that blocks have reached.
///
/// # Safety
/// The owner calls; the span is live.
unsafe fn reached(span: *const Span) -> usize {
    // SAFETY: by this function's contract.
    unsafe { (*span).own.carved as usize * (*span).fixed.block }
}

/// The list head that other threads write, on lines of its own.
#[repr(align(128))]
struct Returned(AtomicPtr<Span>);

#[repr(C)]
pub struct Heap {
    /// For each size in units of 16 bytes, the first span of its bin.
    pub direct: [*mut Span; DIRECT],
    bins: [Bin; CLASSES],
    /// The bins of policies that distinguish more than size classes.
    table: Table,
    /// Changes when the heap gets another owner.
    generation: u32,
    /// The number of slices of empty spans that are kept.
    kept: usize,
    /// The kept spans of one slice, or null.
    kept_spans: [*mut Span; MOST_KEPT],
    /// How much memory buckets may take.
    budget: Budget,
    /// Bytes of the spans without free blocks, which are in no bin. A new owner may use those of the
    /// first kind at once ([`lines_are_own`]); those of the second kind are closed for it. (The size
    /// of a line may be set after the first allocations, so these sums are estimates.)
    full: [usize; 2],
    /// Bytes of the spans that are closed ([`Heap::close`]).
    closed: usize,
    /// In the pool: the next heap.
    pub next: *mut Heap,
    returned: Returned,
}

impl Heap {
    /// Sets up an empty heap in place, because it is large. `direct` says whether the size class
    /// alone chooses a request's bin.
    ///
    /// # Safety
    /// `heap` points to zeroed memory for a heap.
    pub unsafe fn set_up(heap: *mut Self, direct: bool) {
        // SAFETY: by this function's contract.
        let heap = unsafe { &mut *heap };
        heap.direct.fill(placeholder());
        for (index, bin) in heap.bins.iter_mut().enumerate() {
            bin.first = null_mut();
            bin.block = class::size(index as u32) as usize;
            bin.direct = (0, 0);
        }
        if direct {
            for i in (0..DIRECT).rev() {
                let class = class::index(i as u64 * 16) as usize;
                if let Some(bin) = heap.bins.get_mut(class) {
                    if bin.direct == (0, 0) {
                        bin.direct.1 = i as u16 + 1;
                    }
                    bin.direct.0 = i as u16;
                }
            }
        }
    }

    /// From here on every request takes the slow path, which asks the policy.
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn disable_fast_path(&mut self) {
        self.direct.fill(placeholder());
        for bin in &mut self.bins {
            bin.direct = (0, 0);
        }
    }

    /// The bin for blocks of at least `size` bytes with the alignment `align`; `None` if no bin has
    /// such blocks. Blocks lie at multiples of their size from an address that is aligned to a
    /// slice.
    pub fn class_bin(&mut self, size: usize, align: usize) -> Option<*mut Bin> {
        let size = class::round_up(size as u64, align as u64);
        let first = class::index(size) as usize;
        self.bins
            .get_mut(first..)?
            .iter_mut()
            .find(|bin| bin.block & (align - 1) == 0)
            .map(|bin| &raw mut *bin)
    }

    /// The bin of a bucket with blocks of `block` bytes. `limited` is as for [`Self::allocate`]: it
    /// also says whether there may be a bin at all.
    ///
    /// # Errors
    /// See [`Refusal`].
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn bucket(
        &mut self,
        key: Key,
        block: usize,
        limited: bool,
    ) -> Result<*mut Bin, Refusal> {
        // SAFETY: by this function's contract.
        unsafe {
            if let Some(bin) = self.table.find(key) {
                return Ok(bin);
            }
            if limited && !self.may_grow(Span::portion(block) + BYTES_OF_BIN, null_mut()) {
                return Err(Refusal::Budget);
            }
            self.budget.grown(BYTES_OF_BIN);
            self.table.make(key, block).ok_or(Refusal::Memory)
        }
    }

    /// The heap, as its spans know it.
    #[inline(always)]
    pub const fn owner(heap: *mut Self) -> *mut Owner {
        heap.cast()
    }

    /// Allocates a block of `bin`. `limited` says whether the bin takes more memory only within the
    /// heap's budget. `reclaim` is as for [`arena::allocate`].
    ///
    /// # Errors
    /// See [`Refusal`].
    ///
    /// # Safety
    /// The owner calls, and the bin is this heap's.
    pub unsafe fn allocate(
        heap: *mut Self,
        bin: *mut Bin,
        limited: bool,
        reclaim: fn(),
    ) -> Result<*mut Block, Refusal> {
        // SAFETY: spans in bins are live, and only the owner uses them.
        unsafe {
            (*heap).drain();
            loop {
                let span = (*bin).first;
                if !span.is_null() {
                    let block = (*span).take();
                    if !block.is_null() {
                        return Ok(block);
                    }
                }
                Self::refill(heap, bin, limited, reclaim)?;
            }
        }
    }

    /// Takes a step towards a free block at the front of `bin`.
    ///
    /// # Safety
    /// As [`Self::allocate`].
    #[cold]
    #[inline(never)]
    unsafe fn refill(
        heap: *mut Self,
        bin: *mut Bin,
        limited: bool,
        reclaim: fn(),
    ) -> Result<(), Refusal> {
        // SAFETY: by this function's contract.
        unsafe {
            let span = (*bin).first;
            if span.is_null() {
                if limited && !(*heap).may_grow(Span::portion((*bin).block), bin) {
                    return Err(Refusal::Budget);
                }
                let new = Self::new_span(heap, (*bin).block, limited, reclaim);
                let new = new.ok_or(Refusal::Memory)?;
                (*bin).insert(new, true);
                (*heap).update_direct(bin);
                return Ok(());
            }
            (*span).check_first();
            (*span).collect();
            if !Block::is_end((*span).own.free) {
                return Ok(());
            }
            if (*span).own.carved < (*span).fixed.capacity {
                // The first blocks of a span were allowed when it was made.
                if limited
                    && (*span).own.carved > 0
                    && !(*heap).may_grow(Span::portion((*bin).block), bin)
                {
                    return Err(Refusal::Budget);
                }
                let before = reached(span);
                (*span).carve();
                (*heap).budget.grown(reached(span) - before);
            } else if (*span).mark_full() {
                (*bin).remove(span);
                (*span).own.set_full(true);
                *(*heap).full_of(span) += reached(span);
                (*heap).update_direct(bin);
            }
            Ok(())
        }
    }

    /// Whether a bucket may have so many bytes more. `bin` is its bin, or null.
    ///
    /// # Safety
    /// The owner calls, and the bin is this heap's.
    unsafe fn may_grow(&mut self, wanted: usize, bin: *const Bin) -> bool {
        if self.budget.allows(wanted) {
            return true;
        }
        if self.budget.must_wait() {
            return false;
        }
        // SAFETY: by this function's contract.
        let (reached, live, spans) = unsafe { self.count(bin) };
        self.budget.counted(reached, live, spans);
        self.budget.allows(wanted)
    }

    /// Counts the bytes that bins take and blocks have reached, the bytes of allocated blocks, and the spans with
    /// free blocks. Frees empty spans, except for those of `but`. Closed spans count as reached
    /// only, because their free blocks are of no use yet.
    ///
    /// # Safety
    /// The owner calls.
    unsafe fn count(&mut self, but: *const Bin) -> (usize, usize, usize) {
        let full: usize = self.full.iter().sum();
        let bins = self.table.bytes();
        let (mut bytes, mut live, mut spans) = (full + self.closed + bins, full, 0);
        let mut add = |heap: &mut Self, bin: *mut Bin| {
            // SAFETY: by this function's contract.
            unsafe {
                if !core::ptr::eq(bin, but) {
                    heap.free_empty(bin);
                }
                let mut span = (*bin).first;
                while !span.is_null() {
                    bytes += reached(span);
                    live += (*span).own.used as usize * (*span).fixed.block;
                    spans += 1;
                    span = (*span).own.next;
                }
            }
        };
        let heap: *mut Self = self;
        // SAFETY: `free_empty` changes neither the arrays of bins nor the table.
        unsafe {
            for bin in &mut (*heap).bins {
                add(&mut *heap, bin);
            }
            (*heap).table.each(|bin| add(&mut *heap, bin));
        }
        (bytes, live, spans)
    }

    /// The sum of full spans to which a span belongs.
    ///
    /// # Safety
    /// The owner calls; the span is live.
    unsafe fn full_of(&mut self, span: *const Span) -> &mut usize {
        // SAFETY: by this function's contract.
        let own = unsafe { lines_are_own((*span).fixed.block) };
        &mut self.full[usize::from(!own)]
    }

    /// # Safety
    /// The owner calls.
    unsafe fn new_span(
        heap: *mut Self,
        block: usize,
        limited: bool,
        reclaim: fn(),
    ) -> Option<*mut Span> {
        let slices = if block <= SMALL_MOST {
            // A bucket may need no more than a page, and others the rest of what was used.
            let most = if limited { PAGE } else { SLICE };
            // SAFETY: by this function's contract.
            if let Some(span) = unsafe { (*heap).reuse(block, most) } {
                return Some(span);
            }
            1
        } else {
            MEDIUM_SLICES
        };
        let span = arena::allocate(slices, Self::owner(heap), block, reclaim)?.span;
        // SAFETY: the span is new and belongs to this heap.
        unsafe {
            (*span).own.generation = (*heap).generation;
            if limited && slices == 1 {
                arena::leave_one_page(span);
            }
        }
        Some(span)
    }

    /// Writes the first span of a bin into the fast path's table.
    ///
    /// # Safety
    /// The owner calls.
    unsafe fn update_direct(&mut self, bin: *const Bin) {
        // SAFETY: bins live as long as their heap.
        let (from, to, first) = unsafe { ((*bin).direct.0, (*bin).direct.1, (*bin).first) };
        let first = if first.is_null() {
            placeholder()
        } else {
            first
        };
        if let Some(places) = self.direct.get_mut(usize::from(from)..usize::from(to)) {
            places.fill(first);
        }
    }
}

const _: () = assert!(SMALL_MOST * 8 <= SLICE && BLOCK_MOST * 8 <= SLICE * MEDIUM_SLICES);
