//! Threads: an index and tables for each. Context: normal.

use crate::local::{Busy, ENDED, Local};
use crate::system;
use core::sync::atomic::{AtomicU32, Ordering};
use sunder_wire::layout::{MAX_THREADS, View};

/// What a thread keeps for itself.
#[repr(C)]
pub struct Thread {
    /// Bounds of its stack.
    pub stack_low: u64,
    /// See `stack_low`.
    pub stack_high: u64,
}

/// Gives the calling thread its index and tables; false if it cannot have them
/// (now).
#[cold]
#[inline(never)]
pub fn register(view: &View, local: *mut Local) -> bool {
    // SAFETY: the thread's own words.
    if unsafe { (*local).phase & ENDED != 0 } {
        return false;
    }
    let Some(_busy) = Busy::enter() else {
        return false;
    };
    let Some(memory) = system::map_anonymous(size_of::<Thread>()) else {
        return false;
    };
    view.status().allocations_seen.store(1, Ordering::Relaxed);
    let index = view.status().threads.fetch_add(1, Ordering::Relaxed) + 1;
    let index = if index < MAX_THREADS { index } else { 0 };
    if let Some(record) = view.threads().get(index as usize).filter(|_| index != 0) {
        record
            .started
            .store(system::clock(libc::CLOCK_MONOTONIC), Ordering::Relaxed);
        let _: &AtomicU32 = &record.tid;
        record.tid.store(system::thread_id(), Ordering::Release);
    }
    // SAFETY: the thread's own words.
    unsafe {
        (*local).index = index;
        (*local).thread = memory.as_ptr().cast();
    }
    true
}
