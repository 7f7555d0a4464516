//! Which thread owns which heap. A thread gets a heap at its first allocation, and a thread that
//! ends leaves its heap to the next new thread. Contexts: pre-init, normal, signal, post-fork.

use crate::heap::Heap;
use crate::local::{self, Away, local};
use crate::lock::{Guard, Lock, Rank};
use crate::{budget, config, memory};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

/// The linked list of heaps without a thread.
struct Waiting(*mut Heap);

// SAFETY: a heap in the list is used only under the lock.
unsafe impl Send for Waiting {}

static WAITING: Lock<Waiting> = Lock::new(Rank::Pool, Waiting(null_mut()));
static EMPTY: AtomicBool = AtomicBool::new(true);
/// Heaps that were given back in a signal handler when the list could not be used. They are linked
/// like those of the list, and join it when it is used next.
static LEFT: AtomicPtr<Heap> = AtomicPtr::new(null_mut());

sunder_guest::notices_ends! {
    /// The ends of threads with heaps.
    static ENDS by thread_ends;
}

/// Destructors of other keys may allocate and free, so the heap is returned in the last round of
/// destructors that the C library certainly runs (`PTHREAD_DESTRUCTOR_ITERATIONS` is 4).
const LAST_ROUND: u32 = 3;

/// Whether no heap waits for a thread.
fn is_empty() -> bool {
    EMPTY.load(Ordering::Relaxed)
}

/// Called once, by [`crate::start`].
pub fn prepare() {
    ENDS.prepare();
    let heap = local::heap();
    if !heap.is_null() {
        watch_for_end(heap);
    }
}

/// May allocate: the thread has its heap by now.
fn watch_for_end(heap: *mut Heap) {
    // SAFETY: the destructor is for the calling thread's heap.
    unsafe { ENDS.watch(heap.cast()) };
}

/// The list, to which heaps that were left join. `None` as for [`Lock::lock`].
fn waiting() -> Option<Guard<'static, Waiting>> {
    let mut waiting = WAITING.lock()?;
    if !LEFT.load(Ordering::Relaxed).is_null() {
        let mut heap = LEFT.swap(null_mut(), Ordering::Acquire);
        while !heap.is_null() {
            // SAFETY: heaps in this list are live and have no owner, and it was taken as a whole.
            unsafe {
                let next = (*heap).next;
                (*heap).next = waiting.0;
                waiting.0 = heap;
                heap = next;
            }
        }
    }
    Some(waiting)
}

/// In the child of a fork in which other threads ran: one of them may have been changing the list or
/// a heap in it. These heaps are not used again.
pub fn after_fork() {
    if let Some(mut waiting) = WAITING.take_over() {
        waiting.0 = null_mut();
        LEFT.store(null_mut(), Ordering::Relaxed);
        EMPTY.store(true, Ordering::Relaxed);
    }
}

/// The destructor at a thread's end.
unsafe extern "C" fn thread_ends(heap: *mut c_void) {
    let local = local();
    // SAFETY: the thread's own words and heap.
    unsafe {
        (*local).rounds += 1;
        if (*local).rounds < LAST_ROUND {
            watch_for_end(heap.cast());
            return;
        }
        (*local).ended = 1;
        (*local).heap = null_mut();
        give_back(heap.cast());
    }
}

/// # Safety
/// The caller owns the heap and does not use it any more.
unsafe fn give_back(heap: *mut Heap) {
    // SAFETY: by this function's contract.
    unsafe {
        (*heap).abandon();
        if let Some(mut waiting) = waiting() {
            (*heap).next = waiting.0;
            waiting.0 = heap;
        } else {
            let mut first = LEFT.load(Ordering::Relaxed);
            loop {
                (*heap).next = first;
                match LEFT.compare_exchange_weak(first, heap, Ordering::Release, Ordering::Relaxed)
                {
                    Ok(_) => break,
                    Err(now) => first = now,
                }
            }
        }
    }
    EMPTY.store(false, Ordering::Relaxed);
}

fn take() -> *mut Heap {
    if !is_empty()
        && let Some(mut waiting) = waiting()
    {
        let heap = waiting.0;
        if !heap.is_null() {
            // SAFETY: heaps in the list are live and have no owner.
            waiting.0 = unsafe { (*heap).next };
            EMPTY.store(waiting.0.is_null(), Ordering::Relaxed);
            return heap;
        }
    }
    new_heap()
}

/// A new heap in a mapping of its own; null if there is no memory.
fn new_heap() -> *mut Heap {
    let Some(memory) = memory::take(size_of::<Heap>()) else {
        return null_mut();
    };
    let heap = memory as *mut Heap;
    // SAFETY: the mapping is new and zeroed.
    unsafe { Heap::set_up(heap, config::uses_classes()) };
    budget::heap_made();
    heap
}

/// The calling thread's heap, which is made now if it has none. Null if there is no memory, the
/// thread is ending, or a signal has interrupted it while it changes its heap.
pub fn own_heap() -> *mut Heap {
    if local::may_get_heap() {
        // SAFETY: the thread has no heap.
        let mut making = unsafe { Away::begin(null_mut()) };
        let heap = take();
        making.return_with(heap);
        drop(making);
        if !heap.is_null() {
            watch_for_end(heap);
        }
    }
    local::heap()
}

/// Lends a heap for one call to a thread that can't use one of its own.
pub fn borrow<T>(with: impl FnOnce(*mut Heap) -> T) -> Option<T> {
    let heap = take();
    if heap.is_null() {
        return None;
    }
    let result = with(heap);
    // SAFETY: the heap was taken above.
    unsafe { give_back(heap) };
    Some(result)
}

/// Collects the blocks that were freed in the heaps of ended threads: these may have empty spans.
pub fn scavenge() {
    if is_empty() {
        return;
    }
    let Some(waiting) = waiting() else { return };
    let mut heap = waiting.0;
    while !heap.is_null() {
        // SAFETY: heaps in the list have no owner, and the lock is held.
        unsafe {
            (*heap).drain();
            heap = (*heap).next;
        }
    }
}
