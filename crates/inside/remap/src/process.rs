//! Which process this library is in, and whether it is in use there. Contexts: all.

use crate::shared::{control, is_alive};
use core::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sunder_guest::system;

/// The id of the process that the library was put into. A `vfork` child shares its memory for a
/// while, with another id.
static PROCESS: AtomicU32 = AtomicU32::new(0);
/// Whether hooks are written, or are about to be.
static HOOKED: AtomicBool = AtomicBool::new(false);
/// Records this process as the one that the library was put into.
pub fn record() {
    PROCESS.store(system::process_id(), Ordering::Relaxed);
}

/// Says whether hooks are written, or are about to be.
pub fn set_hooked(hooked: bool) {
    HOOKED.store(hooked, Ordering::SeqCst);
}

/// Whether this is another process in our memory, the child of a `vfork`, which has signal actions
/// of its own. A forked child is not: it has its own memory as well.
pub fn is_guest() -> bool {
    is_here() && is_another()
}

/// Whether this is another process than the one that the library was put into: a guest, also if the
/// library is not in use any more, or a forked child.
pub fn is_another() -> bool {
    system::process_id() != PROCESS.load(Ordering::Relaxed)
}

/// Whether the library is in use here; true from before anything can be moved, and false in forked
/// children.
pub fn is_here() -> bool {
    control().is_some() || HOOKED.load(Ordering::Acquire) && is_alive()
}
