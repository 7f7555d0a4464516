//! Whether and where the runtime records. Contexts: all.
//!
//! The words for that lie in a page that the kernel wipes in every forked child, however it was
//! forked: the child is passive from its first instruction and leaves its parent's records alone,
//! until it has a segment of its own ([`crate::follow`]).

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_guest::confinement::Confinement;
use sunder_guest::system;
use sunder_wire::layout::View;

/// Once the program has confined itself no thread is registered, no timer runs, no memory is mapped, and
/// nothing is passed on. Clocks are still read where the C library needs no system call for that.
pub static CONFINEMENT: Confinement = Confinement::new();

/// The contents of that page; all zero means passive.
struct State {
    /// The segment's address, for the recording of the heap.
    heap: AtomicUsize,
    /// The segment's address, for all other records.
    segment: AtomicUsize,
}

static PASSIVE: State = State {
    heap: AtomicUsize::new(0),
    segment: AtomicUsize::new(0),
};
static STATE: AtomicPtr<State> = AtomicPtr::new((&raw const PASSIVE).cast_mut());

#[inline]
fn state() -> &'static State {
    // SAFETY: the pointer is that of `PASSIVE` or of a page that is never unmapped.
    unsafe { &*STATE.load(Ordering::Acquire) }
}

#[inline]
fn view(word: &AtomicUsize) -> Option<View> {
    let base = NonNull::new(word.load(Ordering::Acquire) as *mut u8);
    // SAFETY: an address is stored only after the segment was mapped, and it is never unmapped.
    base.map(|base| unsafe { View::new(base) })
}

/// The segment, if the heap is recorded in this process.
#[inline]
pub fn heap() -> Option<View> {
    view(&state().heap)
}

/// The segment, if this process is observed.
#[inline]
pub fn segment() -> Option<View> {
    view(&state().segment)
}

/// Starts recording into `view`; false if the kernel cannot wipe the page in
/// forked children, in which case the runtime stays passive.
pub fn activate(view: View) -> bool {
    let base = view.base().as_ptr() as usize;
    let old = STATE.load(Ordering::Acquire);
    if !core::ptr::eq(old, &raw const PASSIVE) {
        // In a forked child: the page exists and was wiped.
        state().segment.store(base, Ordering::Release);
        return true;
    }
    let Some(page) = system::map_anonymous(PAGE, system::READ_WRITE, 0) else {
        return false;
    };
    // SAFETY: the page is new and empty.
    if unsafe { system::advise(page.as_ptr() as usize, PAGE, libc::MADV_WIPEONFORK) } != 0 {
        return false;
    }
    let new = page.as_ptr().cast::<State>();
    // SAFETY: the page is mapped, aligned and zeroed.
    unsafe {
        (*new).segment.store(base, Ordering::Release);
    }
    STATE.store(new, Ordering::Release);
    true
}

/// Starts recording the heap. Only after [`activate`].
pub fn record_heap() {
    let base = state().segment.load(Ordering::Acquire);
    state().heap.store(base, Ordering::Release);
}
