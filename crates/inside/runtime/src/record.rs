//! Records allocations and frees of heap blocks in the segment. Context: normal (and signal, where
//! a program allocates in a handler although it must not).
//!
//! Between allocation and free a block's address belongs to one thread at a
//! time, and so does its shadow slot: plain stores are enough, and the
//! allocator's own synchronisation orders them.

use crate::local::{self, BUSY, local};
use crate::stack;
use crate::state::CONFINEMENT;
use crate::{state, thread};
use core::ffi::c_void;
use core::ptr::NonNull;
use core::sync::atomic::{AtomicU64, Ordering};
use sunder_guest::allocator::Caller;
use sunder_guest::system;
use sunder_wire::large::LargeBlock;
use sunder_wire::layout::{
    CHUNK_BYTES, Entry, HOT_WATCHED, MAX_CHUNKS, MAX_SMALL, SHADOW, View, hot_epoch, watch_bit,
};

/// A block's record before a call that may change it.
#[derive(Clone, Copy)]
pub struct Before(u64);

/// Records the block that an allocation function returned, if the heap is recorded. Returns the
/// block, so that the caller can end with this call. A null pointer is not recorded.
#[inline]
pub fn allocated(block: *mut c_void, size: u64, caller: Caller) -> *mut c_void {
    let address = block as u64;
    // SAFETY: the thread's own words and tables.
    unsafe {
        let thread = local::thread();
        if !thread.is_null()
            && let Some(view) = (*thread).heap
            && size <= MAX_SMALL
            && let Some(stack) = stack::known(&raw const (*thread).cache, caller)
            // A null pointer has no slot.
            && let Some(slot) = view.find_slot(address)
        {
            let hot = view.control().hot.load(Ordering::Relaxed);
            if hot & HOT_WATCHED == 0 {
                let entry = Entry::of((*thread).owner, hot, address, size, stack);
                slot.store(entry.0, Ordering::Release);
                return block;
            }
        }
    }
    allocated_slowly(block, size, caller)
}

/// The alignment of blocks for which none was requested.
pub const USUAL_ALIGNMENT: usize = 16;

/// The same for a block that was requested at a multiple of `alignment`.
#[inline(never)]
pub fn allocated_aligned(
    block: *mut c_void,
    size: u64,
    alignment: usize,
    caller: Caller,
) -> *mut c_void {
    if let Some(view) = state::heap().filter(|_| !block.is_null())
        && let Some(stack) = record(view, block as u64, size, caller)
    {
        view.note_alignment(stack, alignment);
    }
    block
}

/// The cases that [`allocated`] leaves out because they are rare or slow.
#[cold]
#[inline(never)]
fn allocated_slowly(block: *mut c_void, size: u64, caller: Caller) -> *mut c_void {
    if let Some(view) = state::heap().filter(|_| !block.is_null()) {
        record(view, block as u64, size, caller);
    }
    block
}

/// Records a block; gives the number of its call stack, or `None` if it was not recorded.
fn record(view: View, block: u64, size: u64, caller: Caller) -> Option<u32> {
    let local = local();
    // SAFETY: the thread's own words.
    let (known, busy) = unsafe { (!(*local).thread.is_null(), (*local).phase & BUSY != 0) };
    if busy {
        return None;
    }
    if !known {
        // A thread that has ended has no tables; its blocks are still recorded.
        thread::register(view, local);
    }
    // SAFETY: the thread's own words and tables, and its caller's registers at our entry.
    let stack = unsafe {
        let own = (*local).thread;
        if own.is_null() {
            stack::number_without_tables(view, caller)
        } else {
            let bounds = ((*own).stack_low, (*own).stack_high);
            stack::number(view, &mut (*own).cache, bounds, caller)
        }
    };
    // SAFETY: the thread's own words.
    let thread = unsafe { (*local).index };
    let hot = view.control().hot.load(Ordering::Relaxed);
    if size > MAX_SMALL {
        let kept = view.insert_large(LargeBlock {
            start: block,
            size,
            stack,
            thread,
            born: hot_epoch(hot),
            freed: None,
        });
        if !kept {
            view.status().blocks_dropped.fetch_add(1, Ordering::Relaxed);
        }
        // Otherwise the record of an earlier small block at this address would hide the large one.
        if let Some(slot) = view.find_slot(block) {
            slot.store(0, Ordering::Release);
        }
    } else {
        let entry = Entry::live(block, size, stack, thread, hot_epoch(hot));
        let slot = view.find_slot(block).or_else(|| new_chunk(&view, block));
        if let Some(slot) = slot {
            slot.store(entry.0, Ordering::Release);
        }
    }
    if hot & HOT_WATCHED != 0 {
        log_if_watched(view, block, size, stack, thread, 0);
    }
    Some(stack)
}

/// Allocates the shadow of the heap around `block`.
#[cold]
#[inline(never)]
fn new_chunk(view: &View, block: u64) -> Option<&AtomicU64> {
    let dropped = &view.status().blocks_dropped;
    let top = view.top(block);
    let Some(_calls) = CONFINEMENT.begin() else {
        dropped.fetch_add(1, Ordering::Relaxed);
        return None;
    };
    let number = view.status().chunks.fetch_add(1, Ordering::Relaxed) + 1;
    if number >= MAX_CHUNKS {
        view.status().chunks.store(MAX_CHUNKS, Ordering::Relaxed);
        dropped.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let offset = SHADOW + number as usize * CHUNK_BYTES;
    let start = NonNull::new(view.base().as_ptr().wrapping_add(offset));
    // SAFETY: this thread has just claimed the chunk.
    if !start.is_some_and(|start| unsafe { populate(start, CHUNK_BYTES) }) {
        dropped.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let _ = top.compare_exchange(0, number, Ordering::AcqRel, Ordering::Relaxed);
    // Another thread was first: this one uses its chunk, and the claimed number is lost.
    view.find_slot(block)
}

/// Makes a shared range accessible and allocates all of its pages: one system call instead of a page fault for each. False
/// if there is no memory for them; a store there would raise a fatal signal. (`MADV_POPULATE_WRITE`
/// is Linux 5.14; an older kernel does not know it, and the pages come one by one.)
///
/// # Safety
/// The range belongs to the segment.
unsafe fn populate(start: NonNull<u8>, bytes: usize) -> bool {
    const POPULATE_WRITE: i32 = 23;
    let at = start.as_ptr() as usize;
    // SAFETY: by this function's contract, nobody counts on faults there.
    if unsafe { system::protect(at, bytes, system::READ_WRITE) } != 0 {
        return false;
    }
    // SAFETY: by this function's contract; contents are kept.
    let result = unsafe { system::advise(at, bytes, POPULATE_WRITE) };
    result == 0 || result == -(libc::EINVAL as isize)
}

/// Records that `block` is about to be freed, if one store is enough for that; false if [`freeing`]
/// must be called.
#[inline]
pub fn freed_at_once(block: u64) -> bool {
    // SAFETY: the thread's own tables.
    unsafe {
        let thread = local::thread();
        if !thread.is_null()
            && let Some(view) = (*thread).heap
            && let Some(slot) = view.find_slot(block)
        {
            let hot = view.control().hot.load(Ordering::Relaxed);
            let entry = Entry(slot.load(Ordering::Relaxed));
            if entry.is_live() && hot & HOT_WATCHED == 0 {
                slot.store(entry.freed_in(hot).0, Ordering::Release);
                return true;
            }
        }
    }
    false
}

/// Records that `block` is about to be freed.
pub fn freeing(view: View, block: u64) -> Before {
    let hot = view.control().hot.load(Ordering::Relaxed);
    freeing_slowly(view, block, hot)
}

fn freeing_slowly(view: View, block: u64, hot: u64) -> Before {
    // SAFETY: the thread's own words.
    let thread = unsafe { (*local()).index };
    if let Some(slot) = view.find_slot(block) {
        let entry = Entry(slot.load(Ordering::Relaxed));
        if entry.is_live() {
            if hot & HOT_WATCHED != 0 {
                log_if_watched(view, block, entry.size(), entry.stack(), thread, 1);
            }
            slot.store(entry.freed(hot_epoch(hot)).0, Ordering::Release);
            return Before(entry.0);
        }
    }
    // Few blocks are large. They are page-sized mappings or have a header before them, so this
    // look-up is rare.
    if view.status().large_changes.load(Ordering::Relaxed) != 0 {
        if hot & HOT_WATCHED != 0
            && let Some(large) = view.large_at(block)
        {
            log_if_watched(view, block, large.size, large.stack, thread, 1);
        }
        view.free_large(block, hot_epoch(hot));
    }
    Before(0)
}

/// Undoes [`freeing`]: the call failed and the block lives on.
#[cold]
pub fn not_freed(view: View, block: u64, before: Before, size_if_large: Option<LargeBlock>) {
    if Entry(before.0).is_live() {
        if let Some(slot) = view.find_slot(block) {
            slot.store(before.0, Ordering::Release);
        }
    } else if let Some(large) = size_if_large {
        view.insert_large(large);
    }
}

/// A block that was resized in place keeps its time of birth.
#[inline]
pub fn resized_in_place(view: View, block: u64, before: Before) {
    let old = Entry(before.0);
    if let Some(slot) = view.find_slot(block) {
        let entry = Entry(slot.load(Ordering::Relaxed));
        if entry.is_live() && old.is_live() {
            slot.store(entry.with_allocation_epoch(old).0, Ordering::Release);
        }
    }
}

fn log_if_watched(view: View, block: u64, size: u64, stack: u32, thread: u32, kind: u64) {
    if !is_watched(view, block, size) {
        return;
    }
    let time = system::clock(libc::CLOCK_MONOTONIC);
    let thread_and_kind = u64::from(thread) | kind << 32;
    if !view
        .events()
        .push(&[time, block, size, thread_and_kind, u64::from(stack)])
    {
        view.status().events_dropped.fetch_add(1, Ordering::Relaxed);
    }
}

/// Whether a watched line contains a byte of `block` or of the rest of its lines.
fn is_watched(view: View, block: u64, size: u64) -> bool {
    let watch = view.watch();
    let first = block & !63;
    let end = block.saturating_add(size.max(1));
    // A small block touches at most nine pages; for a larger one the exact list costs no more than
    // the filter.
    if size <= MAX_SMALL {
        let hit = (first >> 12..=(end - 1) >> 12).any(|page| {
            let (word, bit) = watch_bit(page << 12);
            watch
                .filter
                .get(word)
                .is_some_and(|w| w.load(Ordering::Relaxed) & bit != 0)
        });
        if !hit {
            return false;
        }
    }
    let count = watch.count.load(Ordering::Acquire) as usize;
    watch.lines.iter().take(count).any(|line| {
        let line = line.load(Ordering::Relaxed);
        line >= first && line < end
    })
}
