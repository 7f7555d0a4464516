//! Two words that each thread has for itself. Contexts: all.

use crate::thread::Thread;
use sunder_guest::local::Inside;

/// What each thread knows of itself.
#[repr(C)]
pub struct Local {
    /// The thread's tables; null before it is registered and after its end.
    pub thread: *mut Thread,
    /// Its index in the segment, kept beyond the end of its tables.
    pub index: u32,
    /// [`Phase`] bits.
    pub phase: u32,
}

/// Inside the runtime's slow paths: allocations that these cause are not ours
/// to look at.
pub const BUSY: u32 = 1;
/// The thread has given its tables back.
pub const ENDED: u32 = 2;

sunder_guest::thread_words! {
    "sunder_local", bytes: 16, align: 16;
    /// The calling thread's own words.
    pub fn local() -> *mut Local;
    /// [`Local::thread`] of the calling thread, in one load.
    pub fn thread() -> *mut Thread;
}

/// Marks the thread as busy until dropped; nothing if it is busy already.
pub fn busy() -> Option<Inside> {
    // SAFETY: a thread's own words, valid while it runs; signal handlers
    // that come between leave them as they found them.
    unsafe { Inside::enter(&raw mut (*local()).phase, BUSY) }
}
