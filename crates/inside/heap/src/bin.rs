//! A bin: the spans of one heap with blocks for one kind of request, those that
//! may have room. Full spans are in no bin. Contexts: pre-init, normal, post-fork.

use crate::span::Span;
use core::ptr::null_mut;

/// The spans for one size (or one size and call site) of one heap.
#[repr(C)]
pub struct Bin {
    /// The span to allocate from; spans with room follow.
    pub first: *mut Span,
    /// Bytes of a block.
    pub block: usize,
    /// Indices of [`crate::heap::Heap::direct`] that lead here: from, to.
    pub direct: (u16, u16),
}

impl Bin {
    /// Without spans.
    pub const EMPTY: Self = Self {
        first: null_mut(),
        block: 0,
        direct: (0, 0),
    };

    /// Whether `span` is its one span.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in this bin.
    pub unsafe fn has_only(&self, span: *mut Span) -> bool {
        // SAFETY: by this function's contract.
        self.first == span && unsafe { (*span).own.next.is_null() }
    }

    /// Puts a span first, or second if there is one: the first is in use.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in no bin.
    pub unsafe fn insert(&mut self, span: *mut Span, front: bool) {
        // SAFETY: spans in bins are live and the owner's.
        unsafe {
            let first = self.first;
            (*span).own.bin = self;
            if front || first.is_null() {
                (*span).own.prev = null_mut();
                (*span).own.next = first;
                if !first.is_null() {
                    (*first).own.prev = span;
                }
                self.first = span;
            } else {
                let next = (*first).own.next;
                (*span).own.prev = first;
                (*span).own.next = next;
                (*first).own.next = span;
                if !next.is_null() {
                    (*next).own.prev = span;
                }
            }
        }
    }

    /// Takes a span out.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in this bin.
    pub unsafe fn remove(&mut self, span: *mut Span) {
        // SAFETY: as above.
        unsafe {
            let (prev, next) = ((*span).own.prev, (*span).own.next);
            if prev.is_null() {
                self.first = next;
            } else {
                (*prev).own.next = next;
            }
            if !next.is_null() {
                (*next).own.prev = prev;
            }
            (*span).own.prev = null_mut();
            (*span).own.next = null_mut();
        }
    }
}
