//! One thread's heap: bins of spans. Its owner allocates and frees without
//! synchronisation; other threads reach spans and [`Heap::tell`] only. Contexts:
//! pre-init, normal, post-fork.

use crate::arena::{self, SLICE};
use crate::bin::Bin;
use crate::span::{Block, Span};
use crate::table::Table;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_placement::class;

/// Requests up to this size find their span by one look into a table.
pub const DIRECT_MOST: usize = 1024;
const DIRECT: usize = DIRECT_MOST / 16 + 1;
/// The largest block that shares a span with others.
pub const BLOCK_MOST: usize = 64 << 10;
const CLASSES: usize = class::index(BLOCK_MOST as u64) as usize + 1;
/// Blocks up to this size lie in spans of one slice.
const SMALL_MOST: usize = 8 << 10;
/// Slices of the spans for larger ones.
const MEDIUM_SLICES: usize = 8;

/// Slices whose spans a heap does not give back when they become empty, beside
/// the last of each bin: a program that fills and empties some spans in turn
/// would otherwise make their blocks anew each time. 1 MiB a thread.
const MOST_KEPT: usize = 16;

/// A span without blocks, where a thread has none.
struct Nothing(Span);

// SAFETY: nobody writes to a span that has no blocks.
unsafe impl Sync for Nothing {}

static NOTHING: Nothing = Nothing(Span::NONE);

fn nothing() -> *mut Span {
    (&raw const NOTHING.0).cast_mut()
}

/// The word that other threads write, on lines of its own.
#[repr(align(128))]
struct Returned(AtomicPtr<Span>);

#[repr(C)]
pub struct Heap {
    /// For each size in units of 16 bytes the first span of its bin.
    pub direct: [*mut Span; DIRECT],
    bins: [Bin; CLASSES],
    /// The bins of policies that tell more apart than classes of sizes.
    pub table: Table,
    /// Changes when the heap gets another owner.
    generation: u32,
    /// Slices of spans that stay when they are empty.
    kept: usize,
    /// Those of one slice among them, or null.
    kept_spans: [*mut Span; MOST_KEPT],
    /// In the pool, the next.
    pub next: *mut Heap,
    returned: Returned,
}

impl Heap {
    /// An empty heap. Filled in place, since it is large. `direct` says whether
    /// requests may go straight to the bins of their classes.
    ///
    /// # Safety
    /// `heap` points to zeroed memory for a heap.
    pub unsafe fn set_up(heap: *mut Self, direct: bool) {
        // SAFETY: by this function's contract.
        let heap = unsafe { &mut *heap };
        heap.direct.fill(nothing());
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

    /// From now on every request is looked at.
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn look_at_everything(&mut self) {
        self.direct.fill(nothing());
        for bin in &mut self.bins {
            bin.direct = (0, 0);
        }
    }

    /// The bin for blocks of at least `size` bytes that keep `align`; none if
    /// no bin has such blocks. Blocks lie at multiples of their size from an
    /// address that is aligned to a slice.
    pub fn class_bin(&mut self, size: usize, align: usize) -> Option<*mut Bin> {
        let size = class::round_up(size as u64, align as u64);
        let first = class::index(size) as usize;
        self.bins
            .get_mut(first..)?
            .iter_mut()
            .find(|bin| bin.block & (align - 1) == 0)
            .map(|bin| &raw mut *bin)
    }

    /// A span of this heap has news: the first block that another thread freed
    /// since it was full.
    ///
    /// # Safety
    /// `heap` is one of ours (they are never given back), and the caller took
    /// the span's mark away.
    pub unsafe fn tell(heap: *mut Self, span: *mut Span) {
        // SAFETY: by this function's contract.
        let (list, next) = unsafe { (&(*heap).returned.0, &(*span).shared.next_returned) };
        let mut first = list.load(Ordering::Relaxed);
        loop {
            next.store(first, Ordering::Relaxed);
            match list.compare_exchange_weak(first, span, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    /// A block of `bin`; null if there is no memory.
    ///
    /// # Safety
    /// The owner calls, and the bin is this heap's.
    pub unsafe fn allocate(heap: *mut Self, bin: *mut Bin) -> *mut Block {
        // SAFETY: spans in bins are live; the owner is alone with them.
        unsafe {
            (*heap).drain();
            loop {
                let span = (*bin).first;
                if span.is_null() {
                    let Some(new) = Self::new_span(heap, (*bin).block) else {
                        return null_mut();
                    };
                    (*bin).insert(new, true);
                    (*heap).show(bin);
                    continue;
                }
                let block = (*span).take();
                if !block.is_null() {
                    return block;
                }
                (*span).collect();
                if (*span).own.free.is_null() {
                    if (*span).own.carved < (*span).fixed.capacity {
                        (*span).carve();
                    } else if (*span).mark_full() {
                        (*bin).remove(span);
                        (*span).own.set_full(true);
                        (*heap).show(bin);
                    }
                }
            }
        }
    }

    /// # Safety
    /// The owner calls.
    unsafe fn new_span(heap: *mut Self, block: usize) -> Option<*mut Span> {
        let slices = if block <= SMALL_MOST {
            // SAFETY: the owner calls.
            if let Some(span) = unsafe { (*heap).reuse(block) } {
                return Some(span);
            }
            1
        } else {
            MEDIUM_SLICES
        };
        let span = arena::allocate(slices, heap, block)?.span;
        // SAFETY: the span is new, and this heap's.
        unsafe { (*span).own.generation = (*heap).generation };
        Some(span)
    }

    /// An empty span that another bin keeps, with blocks of `block` bytes now: its
    /// memory is at hand, and was lately used.
    ///
    /// # Safety
    /// The owner calls.
    unsafe fn reuse(&mut self, block: usize) -> Option<*mut Span> {
        // SAFETY: kept spans are this heap's and live; empty ones are in their bins.
        unsafe {
            let place = self.kept_spans.iter().position(|&span| {
                !span.is_null()
                    && (*span).own.used == 0
                    && !(*span).own.is_full()
                    && !(*(*span).own.bin).has_only(span)
            })?;
            let span = core::mem::replace(&mut self.kept_spans[place], null_mut());
            self.kept -= 1;
            let bin = (*span).own.bin;
            (*bin).remove(span);
            self.show(bin);
            let (start, generation) = ((*span).fixed.start, self.generation);
            (*span).set(self, start, 1, block, SLICE);
            (*span).own.generation = generation;
            Some(span)
        }
    }

    /// Lets the fast path know the first span of a bin.
    ///
    /// # Safety
    /// The owner calls.
    unsafe fn show(&mut self, bin: *const Bin) {
        // SAFETY: bins live as long as their heap.
        let (from, to, first) = unsafe { ((*bin).direct.0, (*bin).direct.1, (*bin).first) };
        let first = if first.is_null() { nothing() } else { first };
        if let Some(places) = self.direct.get_mut(usize::from(from)..usize::from(to)) {
            places.fill(first);
        }
    }

    /// After a block was given back to a span that is now empty or was full.
    ///
    /// # Safety
    /// The owner calls; the span is this heap's.
    #[cold]
    #[inline(never)]
    pub unsafe fn settle(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            if (*span).own.is_full() {
                let closed = (*span).own.generation != self.generation;
                if closed && (*span).own.used > 0 {
                    return;
                }
                if !(*span).unmark_full() {
                    // Who did will tell.
                    return;
                }
                if closed {
                    arena::free(span);
                    return;
                }
                self.reopen(span);
            }
            if (*span).own.used == 0 {
                self.retire(span);
            }
        }
    }

    /// # Safety
    /// As [`Self::settle`]; the span's mark is away.
    unsafe fn reopen(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            (*span).own.set_full(false);
            let bin = (*span).own.bin;
            (*bin).insert(span, false);
            self.show(bin);
        }
    }

    /// Gives an empty span back, unless it is the last of its bin: the next
    /// request would want it.
    ///
    /// # Safety
    /// As [`Self::settle`]; the span is in its bin.
    unsafe fn retire(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            let bin = (*span).own.bin;
            if (*span).own.kept || (*bin).has_only(span) {
                return;
            }
            let slices = (*span).fixed.slices as usize;
            if self.kept + slices <= MOST_KEPT {
                self.kept += slices;
                (*span).own.kept = true;
                if slices == 1
                    && let Some(place) = self.kept_spans.iter_mut().find(|s| s.is_null())
                {
                    *place = span;
                }
                return;
            }
            (*bin).remove(span);
            self.show(bin);
            arena::free(span);
        }
    }

    /// Takes back what other threads have freed in full spans.
    ///
    /// # Safety
    /// The owner calls.
    #[inline]
    pub unsafe fn drain(&mut self) {
        if self.returned.0.load(Ordering::Relaxed).is_null() {
            return;
        }
        let mut span = self.returned.0.swap(null_mut(), Ordering::Acquire);
        while !span.is_null() {
            // SAFETY: spans in the list have a block that we have not yet
            // counted as free, so they are live; their marks are away.
            unsafe {
                let next = (*span).shared.next_returned.load(Ordering::Relaxed);
                (*span).collect();
                if (*span).own.generation != self.generation {
                    self.close(span);
                } else {
                    self.reopen(span);
                    if (*span).own.used == 0 {
                        self.retire(span);
                    }
                }
                span = next;
            }
        }
    }

    /// Sets aside a span of a former owner, or gives it back if it is empty.
    ///
    /// # Safety
    /// The owner calls; the span is in no bin and has no mark.
    unsafe fn close(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            (*span).own.set_full(true);
            loop {
                (*span).collect();
                if (*span).own.used == 0 {
                    arena::free(span);
                    return;
                }
                if (*span).mark_full() {
                    return;
                }
            }
        }
    }

    /// Prepares the heap for another owner: spans with live blocks stay with
    /// what they hold until they are empty.
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn leave(&mut self) {
        // SAFETY: by this function's contract.
        unsafe {
            self.drain();
            self.generation = self.generation.wrapping_add(1);
            self.kept = 0;
            self.kept_spans = [null_mut(); MOST_KEPT];
            let heap: *mut Self = self;
            for bin in &mut (*heap).bins {
                (*heap).empty(bin);
            }
            (*heap).table.each(|bin| (*heap).empty(bin));
        }
    }

    /// # Safety
    /// As [`Self::leave`].
    unsafe fn empty(&mut self, bin: *mut Bin) {
        // SAFETY: by this function's contract.
        unsafe {
            loop {
                let span = (*bin).first;
                if span.is_null() {
                    break;
                }
                (*bin).remove(span);
                self.close(span);
            }
            self.show(bin);
        }
    }

    /// Gives back the empty spans that are kept for the next request.
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn trim(&mut self) {
        // SAFETY: by this function's contract.
        unsafe {
            self.drain();
            let heap: *mut Self = self;
            for bin in &mut (*heap).bins {
                let mut span = bin.first;
                while !span.is_null() {
                    let next = (*span).own.next;
                    (*span).collect();
                    if (*span).own.used == 0 {
                        if (*span).own.kept {
                            (*heap).kept -= (*span).fixed.slices as usize;
                            for place in &mut (*heap).kept_spans {
                                if *place == span {
                                    *place = null_mut();
                                }
                            }
                        }
                        bin.remove(span);
                        arena::free(span);
                    }
                    span = next;
                }
                (*heap).show(bin);
            }
        }
    }
}

const _: () = assert!(SMALL_MOST * 8 <= SLICE && BLOCK_MOST * 8 <= SLICE * MEDIUM_SLICES);
