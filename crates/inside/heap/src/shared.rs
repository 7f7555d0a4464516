//! The one heap of the process under the policy `general`: objects of all threads lie side by side.
//! It is the baseline for the other policies. Contexts: pre-init, normal, signal,
//! post-fork.

use crate::heap::Heap;
use crate::lock::{Lock, Rank};
use core::ptr::null_mut;

struct SharedHeap(*mut Heap);

// SAFETY: used only under the lock.
unsafe impl Send for SharedHeap {}

static HEAP: Lock<SharedHeap> = Lock::new(Rank::SharedHeap, SharedHeap(null_mut()));

/// In the child of a fork in which other threads ran: one of them may have been changing the heap.
/// It is not used again.
pub fn after_fork() {
    if let Some(mut heap) = HEAP.take_over() {
        heap.0 = null_mut();
    }
}

/// Calls a function as the heap's only user. `None` if there is no memory for the heap, or a signal
/// has interrupted the calling thread while it uses the heap.
pub fn with<T>(call: impl FnOnce(*mut Heap) -> T) -> Option<T> {
    let mut heap = HEAP.lock()?;
    if heap.0.is_null() {
        let memory = crate::memory::take(size_of::<Heap>())?;
        heap.0 = memory as *mut Heap;
        // SAFETY: the mapping is new and zeroed.
        unsafe { Heap::set_up(heap.0, false) };
    }
    Some(call(heap.0))
}
