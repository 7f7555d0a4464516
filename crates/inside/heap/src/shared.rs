//! The one heap of the process under the policy `general`: objects of all threads lie side by side.
//! It is the baseline for the other policies. Contexts: pre-init, normal, post-fork.

use crate::heap::Heap;
use crate::lock::Lock;
use core::ptr::null_mut;

struct SharedHeap(*mut Heap);

// SAFETY: used only under the lock.
unsafe impl Send for SharedHeap {}

static HEAP: Lock<SharedHeap> = Lock::new(SharedHeap(null_mut()));

/// Takes the lock, which is held across a fork.
pub fn before_fork() {
    HEAP.acquire();
}

/// # Safety
/// After [`before_fork`], by the same thread or its copy in the child.
pub unsafe fn after_fork() {
    // SAFETY: by this function's contract.
    unsafe { HEAP.release() };
}

/// Calls a function as the heap's only user. `None` if there is no memory for the heap.
pub fn with<T>(call: impl FnOnce(*mut Heap) -> T) -> Option<T> {
    let mut heap = HEAP.lock();
    if heap.0.is_null() {
        let memory = crate::memory::take(size_of::<Heap>())?;
        heap.0 = memory as *mut Heap;
        // SAFETY: the mapping is new and zeroed.
        unsafe { Heap::set_up(heap.0, false) };
    }
    Some(call(heap.0))
}
