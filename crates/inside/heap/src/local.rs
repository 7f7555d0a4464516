//! What each thread knows of its heap. Contexts: all.

use crate::heap::Heap;

/// What a thread knows of its heap.
#[repr(C)]
pub struct Local {
    /// Null before its first allocation and after its end.
    pub heap: *mut Heap,
    /// Rounds of thread-end destructors that it has been through.
    pub rounds: u32,
    /// Its heap has been given back: it must not get another.
    pub ended: u32,
}

sunder_guest::thread_words! {
    "sunder_heap_local", bytes: 16, align: 16;
    /// The calling thread's own words.
    pub fn local() -> *mut Local;
    /// [`Local::heap`] of the calling thread.
    pub fn heap() -> *mut Heap;
}
