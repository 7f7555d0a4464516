//! Whose heap is whose: heaps come with threads, and those of threads that have
//! ended wait here for new ones. Also what must be done around `fork`. Contexts:
//! pre-init, normal, post-fork.

use crate::heap::Heap;
use crate::local::{self, local};
use crate::lock::Lock;
use crate::{arena, config, huge, memory, shared};
use core::ffi::c_void;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Heaps without a thread, linked.
struct Waiting(*mut Heap);

// SAFETY: a heap in the list is used under the lock alone.
unsafe impl Send for Waiting {}

static WAITING: Lock<Waiting> = Lock::new(Waiting(null_mut()));
static EMPTY: AtomicBool = AtomicBool::new(true);

/// The key whose destructor runs at the end of a thread; 0 is none (the key is
/// kept plus one).
static KEY: AtomicU32 = AtomicU32::new(0);

/// Other destructors may allocate and free; so the heap is given back in the
/// last round of destructors that the C library surely makes
/// (`PTHREAD_DESTRUCTOR_ITERATIONS` is 4).
const LAST_ROUND: u32 = 3;

/// Whether there is nothing to look through.
pub fn is_empty() -> bool {
    EMPTY.load(Ordering::Relaxed)
}

/// Called once, from the constructor.
pub fn prepare() {
    let mut key = 0;
    // SAFETY: `key` is a valid place; the functions have the types that are
    // asked for.
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
        // SAFETY: the key exists. May allocate, for which the heap is there.
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
    // SAFETY: the locks were taken before the fork by this thread.
    unsafe {
        huge::after_fork();
        arena::after_fork();
        shared::after_fork();
        WAITING.release();
    }
}

/// At a thread's end.
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
/// The heap is the caller's, who uses it no more.
unsafe fn give_back(heap: *mut Heap) {
    // SAFETY: by this function's contract.
    unsafe {
        (*heap).leave();
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
            // SAFETY: heaps in the list are live and nobody's.
            waiting.0 = unsafe { (*heap).next };
            EMPTY.store(waiting.0.is_null(), Ordering::Relaxed);
            return heap;
        }
    }
    new_heap()
}

/// A heap of its own pages; null if there is no memory.
fn new_heap() -> *mut Heap {
    let Some(memory) = memory::take(size_of::<Heap>()) else {
        return null_mut();
    };
    let heap = memory as *mut Heap;
    // SAFETY: fresh zeroed pages.
    unsafe { Heap::set_up(heap, config::uses_classes()) };
    heap
}

/// The calling thread's heap, which it gets now if it has none; null if there
/// is no memory or the thread is at its end.
pub fn mine() -> *mut Heap {
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

/// Lets a thread that is at its end use a heap for one call.
pub fn borrow<T>(with: impl FnOnce(*mut Heap) -> T) -> Option<T> {
    let heap = take();
    if heap.is_null() {
        return None;
    }
    let result = with(heap);
    // SAFETY: taken above.
    unsafe { give_back(heap) };
    Some(result)
}

/// Takes back what has been freed in the heaps of ended threads.
pub fn scavenge() {
    let waiting = WAITING.lock();
    let mut heap = waiting.0;
    while !heap.is_null() {
        // SAFETY: heaps in the list are nobody's, and the lock is held.
        unsafe {
            (*heap).drain();
            heap = (*heap).next;
        }
    }
}
