//! Two thread-local words of each thread. Contexts: all.

use crate::tables::Thread;
use sunder_guest::local::Inside;

/// The runtime's thread-local state.
#[repr(C)]
pub struct Local {
    /// The thread's tables; null before it is registered and after its end.
    pub thread: *mut Thread,
    /// The thread's index in the segment; still set when the tables are gone.
    pub index: u32,
    /// [`Phase`] bits.
    pub phase: u32,
}

/// The thread is in the runtime's slow path: allocations made there are not recorded.
pub const BUSY: u32 = 1;
/// The thread has returned its tables.
pub const ENDED: u32 = 2;
/// The program has blocked the timers' signal in this thread, which the kernel does not know.
pub const BLOCKS: u32 = 4;

sunder_guest::thread_words! {
    "sunder_local", bytes: 16, align: 16;
    /// The calling thread's words.
    pub fn local() -> *mut Local;
    /// [`Local::thread`] of the calling thread, in one load.
    pub fn thread() -> *mut Thread;
}

/// Marks the thread as busy until dropped; `None` if it is busy already.
pub fn busy() -> Option<Inside> {
    // SAFETY: a thread's own words, valid while it runs; signal handlers that interrupt it leave
    // them unchanged.
    unsafe { Inside::enter(&raw mut (*local()).phase, BUSY) }
}
