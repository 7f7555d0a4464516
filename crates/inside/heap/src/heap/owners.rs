//! What a heap has to do with threads that are not its owner: blocks that others free, the change of
//! its owner, and the child of a fork. Contexts: as [`super`].

use super::{Heap, lines_are_own, reached};
use crate::arena;
use crate::block::Block;
use crate::span::{Bin, Owner, Span};
use core::ptr::null_mut;
use core::sync::atomic::Ordering;

impl Heap {
    /// Called by another thread that has freed the first block of a span since it was full: adds
    /// the span to the heap's list.
    ///
    /// # Safety
    /// `owner` is a heap (they are never unmapped), and the caller has removed the span's mark.
    pub(super) unsafe fn add_returned(owner: *mut Owner, span: *mut Span) {
        let heap: *mut Self = owner.cast();
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

    /// # Safety
    /// As [`Self::settle`]; the span has no mark.
    pub(super) unsafe fn reopen(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            let full = self.full_of(span);
            *full = full.saturating_sub(reached(span));
            (*span).own.set_full(false);
            let bin = (*span).own.bin;
            (*bin).insert(span, false);
            self.update_direct(bin);
        }
    }

    /// Collects the blocks that other threads have freed in full spans.
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
            // SAFETY: spans in the list have a block that is not yet counted as free, so they are
            // live; they have no marks.
            unsafe {
                let next = (*span).shared.next_returned.load(Ordering::Relaxed);
                (*span).collect();
                if self.is_closed(span) {
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

    /// Whether nothing is allocated in a span that is in no bin until it is empty: it is of a former
    /// owner, and its blocks share lines.
    ///
    /// # Safety
    /// The owner calls.
    pub(super) unsafe fn is_closed(&self, span: *const Span) -> bool {
        // SAFETY: by this function's contract.
        unsafe { (*span).own.generation != self.generation && !lines_are_own((*span).fixed.block) }
    }

    /// # Safety
    /// The owner calls; the span is closed and has no blocks and no mark.
    pub(super) unsafe fn free_closed(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            self.closed = self.closed.saturating_sub(reached(span));
            self.unkeep(span);
            arena::free(span);
        }
    }

    /// Closes a span of a former owner, which is counted as closed, for allocation, or frees it if
    /// it is empty.
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
                    self.free_closed(span);
                    return;
                }
                if (*span).mark_full() {
                    return;
                }
            }
        }
    }

    /// Prepares the heap for another owner. Where blocks share lines, nothing more is allocated in
    /// spans with live blocks until they are empty.
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn abandon(&mut self) {
        // SAFETY: by this function's contract.
        unsafe {
            self.drain();
            self.generation = self.generation.wrapping_add(1);
            let heap: *mut Self = self;
            for bin in &mut (*heap).bins {
                (*heap).free_empty(bin);
            }
            (*heap).table.each(|bin| (*heap).free_empty(bin));
            self.closed += core::mem::take(&mut self.full[1]);
            for bin in &mut (*heap).bins {
                (*heap).close_bin(bin);
            }
            (*heap).table.each(|bin| (*heap).close_bin(bin));
        }
    }

    /// # Safety
    /// As [`Self::abandon`].
    unsafe fn close_bin(&mut self, bin: *mut Bin) {
        // SAFETY: by this function's contract.
        unsafe {
            if lines_are_own((*bin).block) {
                return;
            }
            loop {
                let span = (*bin).first;
                if span.is_null() {
                    break;
                }
                (*bin).remove(span);
                self.unkeep(span);
                self.closed += reached(span);
                self.close(span);
            }
            self.update_direct(bin);
        }
    }

    /// In the child of a fork in which other threads ran: they may have been returning blocks, and
    /// a list of these may be half there. Such blocks are not used again.
    ///
    /// # Safety
    /// The owner calls, in a process with one thread.
    pub unsafe fn forget_returned(&mut self) {
        self.returned.0.store(null_mut(), Ordering::Relaxed);
        let forget = |bin: *mut Bin| {
            // SAFETY: bins live as long as their heap, and the spans in them are the owner's.
            unsafe {
                let mut span = (*bin).first;
                while !span.is_null() {
                    (*span).shared.remote.store(0, Ordering::Relaxed);
                    span = (*span).own.next;
                }
            }
        };
        for bin in &mut self.bins {
            forget(bin);
        }
        self.table.each(forget);
    }
}

/// Frees a block of another thread's heap.
///
/// # Safety
/// `block` is a block of `span`, and the program frees it.
#[inline(never)]
pub unsafe fn give_remote(span: *mut Span, block: *mut Block) {
    // SAFETY: the span lives while the block is allocated. If the span was full, it lives on after
    // the push, because its owner examines it only when it is in the heap's list.
    unsafe {
        let owner = (*span).fixed.owner;
        if Span::push_remote(span, block) {
            Heap::add_returned(owner, span);
        }
    }
}
