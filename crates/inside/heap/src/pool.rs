//! Which thread owns which heap. A thread gets a heap at its first allocation, and a thread that
//! ends leaves its heap to the next new thread. Also takes all locks around `fork`. Contexts:
//! pre-init, normal, post-fork.

use crate::heap::Heap;
use crate::local::{self, local};
use crate::lock::Lock;
use crate::{arena, config, huge, memory, shared};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// The linked list of heaps without a thread.
struct Waiting(*mut Heap);

// SAFETY: a heap in the list is used only under the lock.
unsafe impl Send for Waiting {}

static WAITING: Lock<Waiting> = Lock::new(Waiting(null_mut()));
static EMPTY: AtomicBool = AtomicBool::new(true);

/// The key whose destructor runs at a thread's end, plus one; 0 is none.
static KEY: AtomicU32 = AtomicU32::new(0);

/// Destructors of other keys may allocate and free, so the heap is returned in the last round of
/// destructors that the C library certainly runs (`PTHREAD_DESTRUCTOR_ITERATIONS` is 4).
const LAST_ROUND: u32 = 3;

/// Whether no heap waits for a thread.
fn is_empty() -> bool {
    EMPTY.load(Ordering::Relaxed)
}

/// Called once, by [`crate::start`].
pub fn prepare() {
    let mut key = 0;
    // SAFETY: `key` is a local; the functions have the required types.
    unsafe {
        if libc::pthread_key_create(&raw mut key, Some(thread_ends)) == 0 {
            KEY.store(key + 1, Ordering::Release);
        }
        libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(after_fork));
    }
    let heap = local::heap();
    if !heap.is_null() {
        watch_for_end(heap);
    }
}

fn watch_for_end(heap: *mut Heap) {
    if let Some(key) = KEY.load(Ordering::Acquire).checked_sub(1) {
        // SAFETY: the key exists. The call may allocate, and the thread has its heap by now.
        unsafe { libc::pthread_setspecific(key, heap.cast()) };
    }
}

extern "C" fn before_fork() {
    WAITING.acquire();
    shared::before_fork();
    arena::before_fork();
    huge::before_fork();
}

extern "C" fn after_fork() {
    // SAFETY: this thread took the locks before the fork.
    unsafe {
        huge::after_fork();
        arena::after_fork();
        shared::after_fork();
        WAITING.release();
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
        let mut waiting = WAITING.lock();
        (*heap).next = waiting.0;
        waiting.0 = heap;
    }
    EMPTY.store(false, Ordering::Relaxed);
}

fn take() -> *mut Heap {
    if !is_empty() {
        let mut waiting = WAITING.lock();
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
    heap
}

/// The calling thread's heap, which is made now if it has none; null if there is no memory or the
/// thread is ending.
pub fn own_heap() -> *mut Heap {
    let local = local();
    // SAFETY: the thread's own words.
    unsafe {
        if (*local).heap.is_null() && (*local).ended == 0 {
            let heap = take();
            (*local).heap = heap;
            if !heap.is_null() {
                watch_for_end(heap);
            }
        }
        (*local).heap
    }
}

/// Lends a heap for one call to a thread that is ending.
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
    let waiting = WAITING.lock();
    let mut heap = waiting.0;
    while !heap.is_null() {
        // SAFETY: heaps in the list have no owner, and the lock is held.
        unsafe {
            (*heap).drain();
            heap = (*heap).next;
        }
    }
}
