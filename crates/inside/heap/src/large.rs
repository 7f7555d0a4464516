//! Blocks that are alone in their span: from 64 KiB up to the sizes of [`crate::huge`]. Any thread
//! may free them. Contexts: pre-init, normal, post-fork.

use crate::arena;
use crate::fatal;
use crate::huge;
use crate::segments::SLICE;
use crate::span::{FULL, Owner, Span};
use core::sync::atomic::Ordering;

/// The largest such block, in bytes. Larger blocks, and those with a larger alignment than a slice,
/// are mappings of their own. It is glibc's upper limit for its mapping threshold.
const MOST: usize = 32 << 20;

/// The owner of spans with one block: no heap, and not null, because a thread without a heap has
/// null.
const NO_HEAP: *mut Owner = core::ptr::dangling_mut();

/// Allocates a block; also returns whether it is known to be all zero. `reclaim` is as for
/// [`arena::allocate`].
pub fn allocate(size: usize, align: usize, reclaim: fn()) -> (*mut u8, bool) {
    if size > MOST || align > SLICE {
        return (huge::allocate(size, align), true);
    }
    let slices = size.max(1).div_ceil(SLICE);
    match arena::allocate(slices, NO_HEAP, slices * SLICE, reclaim) {
        Some(got) => {
            // SAFETY: the span is new and ours, and has one block of all its bytes.
            unsafe {
                (*got.span).fixed.block = got.count * SLICE;
                (*got.span).fixed.bytes = got.count * SLICE;
                (*got.span).own.used = 1;
            }
            (got.start as *mut u8, got.zero)
        }
        // The arena has no address space left.
        None => (huge::allocate(size, align), true),
    }
}

/// Frees the block of a span with one block.
///
/// # Safety
/// The program has passed the block to be freed.
pub unsafe fn free(span: *mut Span) {
    // SAFETY: by this function's contract; if two threads free it at once, one of them sees the
    // mark.
    unsafe {
        let remote = &(*span).shared.remote;
        if remote.swap(FULL, Ordering::AcqRel) != 0 {
            fatal::abort(b"double free", (*span).fixed.start);
        }
        arena::free(span);
    }
}
