//! Empty spans of a heap: which are kept for the next request, which another bin takes over, and which
//! are freed. Contexts: as [`super`].

use super::{Heap, MOST_KEPT, reached};
use crate::arena;
use crate::segments::SLICE;
use crate::span::{Bin, Span};
use core::ptr::null_mut;

impl Heap {
    /// Takes an empty span that another bin keeps, of which blocks have reached no more than `most`
    /// bytes, and gives it blocks of `block` bytes. Its memory is mapped and was used recently.
    ///
    /// # Safety
    /// The owner calls.
    pub(super) unsafe fn reuse(&mut self, block: usize, most: usize) -> Option<*mut Span> {
        // SAFETY: kept spans belong to this heap and are live; empty ones are in their bins.
        unsafe {
            let index = self.kept_spans.iter().position(|&span| {
                !span.is_null()
                    && (*span).own.used == 0
                    && !(*span).own.is_full()
                    && reached(span) <= most
                    && !(*(*span).own.bin).has_only(span)
            })?;
            let span = core::mem::replace(&mut self.kept_spans[index], null_mut());
            self.kept -= 1;
            let bin = (*span).own.bin;
            (*bin).remove(span);
            self.update_direct(bin);
            let (start, generation) = ((*span).fixed.start, self.generation);
            arena::note_reached(span);
            (*span).set(Self::owner(self), start, 1, block, SLICE);
            (*span).own.generation = generation;
            Some(span)
        }
    }

    /// Whether a span in which a block was freed, and which is empty now or was full before, stays
    /// as it is.
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn is_settled(span: *mut Span) -> bool {
        // SAFETY: by this function's contract.
        unsafe { !(*span).own.is_full() && Self::keeps(span) }
    }

    /// Called after a block was freed in a span that is empty now or was full before, unless that
    /// [`Self::is_settled`].
    ///
    /// # Safety
    /// The owner calls; the span is this heap's.
    pub unsafe fn settle(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            if (*span).own.is_full() {
                let closed = self.is_closed(span);
                if closed && (*span).own.used > 0 {
                    return;
                }
                if !(*span).unmark_full() {
                    // Another thread has removed the mark and will call [`Self::add_returned`].
                    return;
                }
                if closed {
                    self.free_closed(span);
                    return;
                }
                self.reopen(span);
            }
            if (*span).own.used == 0 {
                self.retire(span);
            }
        }
    }

    /// Whether an empty span stays as it is: the heap keeps it, or it is the last of its bin, which
    /// the next request would need.
    ///
    /// # Safety
    /// As [`Self::settle`]; the span is in its bin.
    #[inline]
    pub(super) unsafe fn keeps(span: *mut Span) -> bool {
        // SAFETY: by this function's contract.
        unsafe { (*span).own.kept || (*(*span).own.bin).has_only(span) }
    }

    /// Frees an empty span, unless it is kept.
    ///
    /// # Safety
    /// As [`Self::settle`]; the span is in its bin.
    pub(super) unsafe fn retire(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            if Self::keeps(span) {
                return;
            }
            let bin = (*span).own.bin;
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
            self.update_direct(bin);
            arena::free(span);
        }
    }

    /// The heap keeps the span no longer, if it did.
    ///
    /// # Safety
    /// The owner calls; the span is this heap's.
    pub(super) unsafe fn unkeep(&mut self, span: *mut Span) {
        // SAFETY: by this function's contract.
        unsafe {
            if !core::mem::take(&mut (*span).own.kept) {
                return;
            }
            self.kept -= (*span).fixed.slices as usize;
        }
        for place in &mut self.kept_spans {
            if *place == span {
                *place = null_mut();
            }
        }
    }

    /// Frees the empty spans of a bin, also those that are kept.
    ///
    /// # Safety
    /// The owner calls, and the bin is this heap's.
    pub(super) unsafe fn free_empty(&mut self, bin: *mut Bin) {
        // SAFETY: by this function's contract.
        unsafe {
            let mut span = (*bin).first;
            while !span.is_null() {
                let next = (*span).own.next;
                (*span).collect();
                if (*span).own.used == 0 {
                    self.unkeep(span);
                    (*bin).remove(span);
                    arena::free(span);
                }
                span = next;
            }
            self.update_direct(bin);
        }
    }

    /// Frees the empty spans that are kept for the next request.
    ///
    /// # Safety
    /// The owner calls.
    pub unsafe fn trim(&mut self) {
        // SAFETY: by this function's contract.
        unsafe {
            self.drain();
            let heap: *mut Self = self;
            for bin in &mut (*heap).bins {
                (*heap).free_empty(bin);
            }
            (*heap).table.each(|bin| (*heap).free_empty(bin));
        }
    }
}
