//! The heap of each thread, in thread-local words. Contexts: all.

use crate::heap::Heap;

/// The thread-local state of the allocator.
#[repr(C)]
pub struct Local {
    /// Null before its first allocation and after its end.
    pub heap: *mut Heap,
    /// The number of rounds of thread-end destructors that the thread has been through.
    pub rounds: u32,
    /// Set when its heap has been returned: the thread must not get another.
    pub ended: u32,
}

sunder_guest::thread_words! {
    "sunder_heap_local", bytes: 16, align: 16;
    /// The calling thread's words.
    pub fn local() -> *mut Local;
    /// [`Local::heap`] of the calling thread.
    pub fn heap() -> *mut Heap;
}
