//! The functions that `include/sunder.h` offers to programs.
//!
//! Contexts: normal. A thread that calls them is not isolated at that moment: a worker can't
//! execute them, so the episode has ended, and what the thread wrote is committed.

use crate::{control, living};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_guest::system;
use sunder_wire::isolation::closed;

/// The largest range that one call isolates: what the tool accepts as one object.
const LARGEST: usize = 64 << 10;

/// Whether threads of this process can be isolated.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_isolation_is_active() -> c_int {
    control::get().map_or(0, |control| {
        let own = control.process.load(Relaxed) == system::process_id();
        c_int::from(own && control.closed.load(Acquire) == closed::OPEN)
    })
}

/// Asks to isolate these bytes: threads get private copies of their pages. Returns whether they
/// will.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_isolation_isolate(start: *mut c_void, bytes: usize) -> c_int {
    if sunder_isolation_is_active() == 0 || start.is_null() || !(1..=LARGEST).contains(&bytes) {
        return 0;
    }
    c_int::from(living::record(start as usize, bytes, true))
}

/// Ends the isolation of the bytes that were asked for at `start`; returns whether there were any.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_isolation_share(start: *mut c_void, _bytes: usize) -> c_int {
    c_int::from(living::forget(start as usize))
}

/// Nothing to do: the call itself has ended the thread's episode, which commits.
#[unsafe(no_mangle)]
pub const extern "C" fn sunder_isolation_commit() -> c_int {
    0
}
