//! The heap of each thread, in thread-local words. Contexts: all.

use crate::heap::Heap;
use core::ptr::null_mut;
use core::sync::atomic::{Ordering, compiler_fence};

/// The thread-local state of the allocator.
#[repr(C)]
pub struct Local {
    /// Null before its first allocation, after its end, and while the heap is [`Away`].
    pub heap: *mut Heap,
    /// The number of rounds of thread-end destructors that the thread has been through.
    pub rounds: u32,
    /// Set when its heap has been returned: the thread must not get another.
    pub ended: u32,
    /// The number of [`Away`] guards: no heap must be made meanwhile.
    away: u32,
    /// Whether the process had one thread when this thread called `fork`.
    pub forks_alone: u32,
}

sunder_guest::thread_words! {
    "sunder_heap_local", bytes: 32, align: 16;
    /// The calling thread's words.
    pub fn local() -> *mut Local;
    /// [`Local::heap`] of the calling thread.
    pub fn heap() -> *mut Heap;
}

/// The heap of the calling thread is being changed. A signal handler that allocates meanwhile finds
/// none and borrows one, and what it frees goes the way of blocks that other threads free.
///
/// The fast paths have no such guard: as in the C library, a handler that allocates may get the
/// block that the interrupted call is just taking.
pub struct Away(*mut Heap);

impl Away {
    /// Hides the heap; `heap` is what the thread has when the guard is dropped.
    ///
    /// # Safety
    /// `heap` is the calling thread's, or null.
    #[inline]
    pub unsafe fn begin(heap: *mut Heap) -> Self {
        let local = local();
        // SAFETY: the thread's own words.
        unsafe {
            (&raw mut (*local).away).write_volatile((*local).away + 1);
            (&raw mut (*local).heap).write_volatile(null_mut());
        }
        compiler_fence(Ordering::SeqCst);
        Self(heap)
    }

    /// The thread has this heap from the end of the guard on.
    pub fn return_with(&mut self, heap: *mut Heap) {
        self.0 = heap;
    }
}

impl Drop for Away {
    #[inline]
    fn drop(&mut self) {
        compiler_fence(Ordering::SeqCst);
        let local = local();
        // SAFETY: the thread's own words.
        unsafe {
            (&raw mut (*local).heap).write_volatile(self.0);
            (&raw mut (*local).away).write_volatile((*local).away - 1);
        }
    }
}

/// Whether the calling thread may be given a heap: it has none, and is neither ending nor in the
/// middle of changing its own.
pub fn may_get_heap() -> bool {
    let local = local();
    // SAFETY: the thread's own words.
    unsafe { (*local).heap.is_null() && (*local).ended == 0 && (*local).away == 0 }
}
