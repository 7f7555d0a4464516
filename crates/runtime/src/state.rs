//! Whether and where the runtime records. Contexts: all.
//!
//! The one word that says so lies in a page that the kernel wipes in every
//! forked child, however it was forked: the child is passive from its first
//! instruction and leaves its parent's records alone.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use sunder_wire::layout::View;

/// The segment's address in the page; 0 means passive.
type Word = AtomicUsize;

static PASSIVE: Word = Word::new(0);
static WORD: AtomicPtr<Word> = AtomicPtr::new((&raw const PASSIVE).cast_mut());

/// The segment, if the runtime records in this process.
#[inline]
pub fn active() -> Option<View> {
    // SAFETY: the pointer is that of `PASSIVE` or of a page that stays mapped.
    let base = unsafe { (*WORD.load(Ordering::Acquire)).load(Ordering::Acquire) };
    // SAFETY: a base is only stored once the segment is mapped, for good.
    NonNull::new(base as *mut u8).map(|base| unsafe { View::new(base) })
}

/// Starts recording into `view`; false if the kernel cannot wipe the page in
/// forked children, in which case the runtime stays passive.
pub fn activate(view: View) -> bool {
    const PAGE: usize = 4096;
    let Some(page) = crate::system::map_anonymous(PAGE) else {
        return false;
    };
    // SAFETY: the page is new and holds nothing.
    if !unsafe { crate::system::advise(page, PAGE, libc::MADV_WIPEONFORK) } {
        return false;
    }
    let word = page.as_ptr().cast::<Word>();
    // SAFETY: the page is mapped, aligned and zeroed.
    unsafe { (*word).store(view.base().as_ptr() as usize, Ordering::Release) };
    WORD.store(word, Ordering::Release);
    true
}
