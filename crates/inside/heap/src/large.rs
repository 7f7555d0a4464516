//! Blocks that share a span with nobody: from 64 KiB up to what [`crate::huge`]
//! takes over. Any thread may free them. Contexts: pre-init, normal, post-fork.

use crate::arena::{self, SLICE};
use crate::fatal;
use crate::heap::Heap;
use crate::huge;
use crate::span::{FULL, Span};
use core::sync::atomic::Ordering;

/// Larger blocks, and those with larger alignments than a slice, are mappings
/// of their own: glibc's upper limit for its mapping threshold.
const MOST: usize = 32 << 20;

/// The owner of spans with one block: no heap, and not null, which is what a
/// thread without a heap has.
const NO_HEAP: *mut Heap = core::ptr::dangling_mut();

/// A block, and whether it is known to be all zero.
pub fn allocate(size: usize, align: usize) -> (*mut u8, bool) {
    if size > MOST || align > SLICE {
        return (huge::allocate(size, align), true);
    }
    let slices = size.max(1).div_ceil(SLICE);
    match arena::allocate(slices, NO_HEAP, slices * SLICE) {
        Some(got) => {
            // SAFETY: the span is new and ours: it has one block, of all bytes.
            unsafe {
                (*got.span).fixed.block = got.count * SLICE;
                (*got.span).fixed.bytes = got.count * SLICE;
                (*got.span).own.used = 1;
            }
            (got.start as *mut u8, got.zero)
        }
        // No address space left in the arena.
        None => (huge::allocate(size, align), true),
    }
}

/// Frees the block of a span with one block.
///
/// # Safety
/// The block is the program's to free.
pub unsafe fn free(span: *mut Span) {
    // SAFETY: by this function's contract; of two threads that free it at once,
    // one sees the mark.
    unsafe {
        let remote = &(*span).shared.remote;
        if remote.swap(FULL, Ordering::AcqRel) != 0 {
            fatal::abort(b"double free", (*span).fixed.start);
        }
        arena::free(span);
    }
}
