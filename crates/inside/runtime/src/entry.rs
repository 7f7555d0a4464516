//! The functions that the target calls instead of the C library's: `dlclose` here, and the malloc
//! family.
//!
//! Contexts: pre-init, normal, post-fork.

use crate::companion;
use crate::record::{self, Before};
use crate::state;
use core::ffi::c_void;
use sunder_guest::allocator::{Caller, Watch, real};
use sunder_guest::early;
use sunder_wire::large::LargeBlock;
use sunder_wire::layout::View;

/// The exported functions. Not in test binaries: these keep their own malloc.
#[cfg(not(test))]
mod exported {
    use core::ffi::{c_int, c_void};

    sunder_guest::watched_heap!(super::LiveHeap);

    /// Interposed. Other code may be loaded at the same addresses later, so remembered unwind rules
    /// are forgotten.
    ///
    /// # Safety
    /// As the C library demands.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn dlclose(library: *mut c_void) -> c_int {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        let result = crate::real::dlclose().map_or(-1, |real| unsafe { real(library) });
        crate::frames::forget();
        result
    }
}

/// Records the live blocks of the program's heap.
struct LiveHeap;

impl Watch for LiveHeap {
    #[inline]
    fn places(caller: Caller) -> bool {
        companion::places(caller)
    }

    #[inline]
    fn allocated(block: *mut c_void, size: usize, alignment: usize, caller: Caller) -> *mut c_void {
        if alignment > record::USUAL_ALIGNMENT {
            return record::allocated_aligned(block, size as u64, alignment, caller);
        }
        record::allocated(block, size as u64, caller)
    }

    #[inline]
    fn freeing(block: *mut c_void) {
        if !block.is_null()
            && let Some(view) = state::heap()
        {
            record::freeing(view, block as u64);
        }
    }

    /// The end of the old block is recorded before the call and taken back if the call fails.
    #[inline]
    fn reallocated(
        block: *mut c_void,
        size: usize,
        caller: Caller,
        call: impl FnOnce() -> *mut c_void,
    ) -> *mut c_void {
        let Some(view) = state::heap() else {
            return call();
        };
        if block.is_null() {
            return record::allocated(call(), size as u64, caller);
        }
        let old = block as u64;
        let large = large_before(&view, old);
        let before: Before = record::freeing(view, old);
        let new = call();
        if new.is_null() {
            if size != 0 {
                record::not_freed(view, old, before, large);
            }
            return new;
        }
        record::allocated(new, size as u64, caller);
        if new == block {
            record::resized_in_place(view, old, before);
        }
        new
    }

    #[inline]
    unsafe fn free(block: *mut c_void) {
        if record::freed_at_once(block as u64)
            && let Some(real) = real::free()
        {
            // SAFETY: the caller's arguments, passed on unchanged under the same contract.
            return unsafe { real(block) };
        }
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe { free_slowly(block) }
    }
}

#[cold]
#[inline(never)]
unsafe fn free_slowly(block: *mut c_void) {
    // The arena for early allocations is checked only here: a block with a live record belongs to
    // the real allocator.
    if early::owns(block) {
        return;
    }
    LiveHeap::freeing(block);
    if let Some(real) = real::free() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe { real(block) }
    }
}

fn large_before(view: &View, block: u64) -> Option<LargeBlock> {
    let small = view.find_slot(block).is_some_and(|slot| {
        let entry = slot.load(core::sync::atomic::Ordering::Relaxed);
        sunder_wire::layout::Entry(entry).is_live()
    });
    if small { None } else { view.large_at(block) }
}
