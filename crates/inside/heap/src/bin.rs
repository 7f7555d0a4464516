//! A bin: the spans of one heap with blocks for one kind of request that may have free blocks. Full
//! spans are in no bin. Contexts: pre-init, normal, post-fork.

use crate::span::Span;
use core::ptr::null_mut;

/// The spans for one size (or one size and call site) of one heap.
#[repr(C)]
pub struct Bin {
    /// The span to allocate from; spans with room follow.
    pub first: *mut Span,
    /// Size of a block, in bytes.
    pub block: usize,
    /// The range of indices of [`crate::heap::Heap::direct`] that point to this bin: from, to.
    pub direct: (u16, u16),
}

impl Bin {
    /// A bin without spans.
    pub const EMPTY: Self = Self {
        first: null_mut(),
        block: 0,
        direct: (0, 0),
    };

    /// Whether `span` is its only span.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in this bin.
    pub unsafe fn has_only(&self, span: *mut Span) -> bool {
        // SAFETY: by this function's contract.
        self.first == span && unsafe { (*span).own.next.is_null() }
    }

    /// Inserts a span: at the front, or after the first span, which is being allocated from.
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

    /// Removes a span.
    ///
    /// # Safety
    /// The heap's owner calls, and the span is in this bin.
    pub unsafe fn remove(&mut self, span: *mut Span) {
        // SAFETY: spans in bins are live and the owner's.
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
