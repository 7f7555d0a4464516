//! What a program that knows of us may ask (`include/sunder.h`). Contexts: normal; a
//! thread that calls this is at home, since a worker can't execute it, and what it wrote
//! is committed by then.

use crate::{blocks, control};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed};
use sunder_guest::system;
use sunder_wire::isolation::closed;

/// The most bytes that are isolated by one call: what the tool takes for one object.
const LARGEST: usize = 64 << 10;

/// Whether threads of this process can be isolated.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_isolation_is_active() -> c_int {
    control::get().map_or(0, |control| {
        let own = control.process.load(Relaxed) == system::process_id();
        c_int::from(own && control.closed.load(Acquire) == closed::OPEN)
    })
}

/// Asks that threads have these bytes for themselves; whether they will.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_isolation_isolate(start: *mut c_void, bytes: usize) -> c_int {
    if sunder_isolation_is_active() == 0 || start.is_null() || !(1..=LARGEST).contains(&bytes) {
        return 0;
    }
    c_int::from(blocks::ask(start, bytes))
}

/// The bytes that were asked for from `start` on are shared again; whether there were any.
#[unsafe(no_mangle)]
pub extern "C" fn sunder_isolation_share(start: *mut c_void, _bytes: usize) -> c_int {
    c_int::from(blocks::forget(start))
}

/// Everything is done by the thread's coming home.
#[unsafe(no_mangle)]
pub const extern "C" fn sunder_isolation_commit() -> c_int {
    0
}
