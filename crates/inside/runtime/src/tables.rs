//! The tables of threads, and the pool of those whose threads have ended. Contexts: normal;
//! [`forget_others`] post-fork.

use crate::stack::Cache;
use crate::{frames, real};
use core::ffi::c_void;
use core::ptr::{NonNull, null_mut};
use core::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use sunder_guest::allocator::Caller;
use sunder_guest::system;
use sunder_wire::creation::CREATOR_FRAMES;
use sunder_wire::layout::View;

/// The tables of a thread. New memory is zero, and the kernel zeroes it again in a forked child.
#[repr(C)]
pub struct Thread {
    /// The segment while the heap is recorded, else null. Reads in one load what
    /// [`crate::state::heap`] reads in two.
    pub heap: Option<View>,
    /// [`Entry::owner`](sunder_wire::layout::Entry::owner) of the thread.
    pub owner: u64,
    /// Bounds of its stack.
    pub stack_low: u64,
    /// See `stack_low`.
    pub stack_high: u64,
    /// CPU time at its last sample, nanoseconds.
    pub sampled: u64,
    /// The frequency of its timer.
    pub timer_hz: u32,
    /// The call stacks that it has seen.
    pub cache: Cache,
    /// The function with which it begins, while it is being created.
    pub start: Option<real::Start>,
    /// The argument of that function.
    pub argument: *mut c_void,
    /// The stack that it was given: the lowest address (0 of one that the C library makes) and the
    /// size, 0 if it is not known.
    pub given_stack: (u64, u64),
    /// [`crate::blocks::hold`] of the thread that made this one.
    pub blocks: bool,
    /// Where it was created.
    pub creation: Creation,
    next: *mut Thread,
}

/// The stack frames in which a thread was created. The creator keeps them, and the new thread
/// records them under its own index.
#[repr(C)]
pub struct Creation {
    creator: u32,
    count: usize,
    /// Return address, stack pointer at the call, and frame pointer.
    frames: [[u64; 3]; CREATOR_FRAMES],
}

impl Creation {
    /// Walks the calling thread's stack. A creator that is not registered has
    /// no known stack, and none is recorded.
    ///
    /// # Safety
    /// `creator` has the calling thread's tables, or is null.
    pub unsafe fn record_frames(&mut self, creator: *const Thread, caller: Caller) {
        (self.creator, self.count) = (0, 0);
        if creator.is_null() {
            return;
        }
        // SAFETY: by this function's contract.
        let (low, high) = unsafe { ((*creator).stack_low, (*creator).stack_high) };
        let mut entries = self.frames.iter_mut();
        let mut count = 0;
        frames::walk_each(caller, low, high, |address, slot, bp| {
            // The bounds of a coroutine's stack are not known.
            let on_stack = (low..high).contains(&slot);
            let Some(entry) = entries.next().filter(|_| on_stack) else {
                return false;
            };
            *entry = [address, slot.wrapping_add(8), bp];
            count += 1;
            true
        });
        (self.creator, self.count) = (system::thread_id(), count);
    }

    /// Writes them into the segment, under the new thread's index.
    pub fn record(&self, view: View, index: u32) {
        let frames = self.frames.get(..self.count).unwrap_or_default();
        if self.creator != 0 {
            view.set_creation(index, self.creator, frames);
        }
    }
}

/// Tables of ended threads, for reuse.
static POOL: AtomicPtr<Thread> = AtomicPtr::new(null_mut());
/// Held while the pool is changed; a thread that finds it held does not wait but goes without the
/// pool.
static POOL_HELD: AtomicBool = AtomicBool::new(false);

fn with_pool<T>(change: impl FnOnce(*mut Thread) -> (*mut Thread, T)) -> Option<T> {
    if POOL_HELD.swap(true, Ordering::Acquire) {
        return None;
    }
    let (first, result) = change(POOL.load(Ordering::Relaxed));
    POOL.store(first, Ordering::Relaxed);
    POOL_HELD.store(false, Ordering::Release);
    Some(result)
}

/// Tables from the pool, or new ones; `None` if there is no memory.
pub fn new_tables() -> Option<NonNull<Thread>> {
    let pooled = with_pool(|first| {
        let Some(tables) = NonNull::new(first) else {
            return (first, None);
        };
        // SAFETY: tables in the pool belong to no thread.
        (unsafe { (*tables.as_ptr()).next }, Some(tables))
    });
    pooled.flatten().or_else(|| {
        let memory = system::map_anonymous(size_of::<Thread>(), system::READ_WRITE, 0)?;
        // SAFETY: a new mapping.
        unsafe {
            system::advise(
                memory.as_ptr() as usize,
                size_of::<Thread>(),
                libc::MADV_WIPEONFORK,
            )
        };
        Some(memory.cast())
    })
}

/// Puts tables into the pool, of a thread that has ended or was not created.
pub fn give_back(tables: *mut Thread) {
    // If the pool is held, the tables are lost until the process ends: some 25 KiB, and rarely.
    with_pool(|first| {
        // SAFETY: the caller owns the tables and gives them up.
        unsafe {
            // The stack of the next thread may lie at the same addresses.
            (*tables).cache.forget();
            (*tables).creation.creator = 0;
            (*tables).next = first;
        }
        (tables, ())
    });
}

/// Empties the pool in a forked child: the kernel has wiped the other threads' tables, and a thread
/// that was changing the pool does not exist here.
pub fn forget_others() {
    POOL.store(null_mut(), Ordering::Relaxed);
    POOL_HELD.store(false, Ordering::Release);
}
