//! Whether the program has blocked the timers' signal, thread by thread. While there are timers the
//! kernel does not block it: workers that block all signals would not be sampled. What the program
//! wants counts when the signal comes from anywhere but our timers ([`crate::timer`]), and from then
//! on the kernel blocks it again.
//!
//! Contexts: normal.

use crate::local::{BLOCKS, local};
use crate::timer;
use core::ffi::c_int;
use sunder_guest::system::set_mask;

const fn bit(signal: c_int) -> u64 {
    1 << (signal - 1)
}

/// Whether the program has blocked the signal in this thread, which the kernel does not know.
pub fn in_this_thread() -> bool {
    // SAFETY: the thread's own words.
    unsafe { (*local()).phase & BLOCKS != 0 }
}

/// Keeps whether the program has blocked the signal in this thread.
pub fn set(blocked: bool) {
    // SAFETY: the thread's own words.
    unsafe {
        let phase = &raw mut (*local()).phase;
        *phase = if blocked {
            *phase | BLOCKS
        } else {
            *phase & !BLOCKS
        };
    }
}

/// If the program has got its signal back, blocks it in this thread where the program believes that
/// it is blocked.
pub fn settle() {
    if let Some(signal) = timer::given_up()
        && in_this_thread()
    {
        set_mask(libc::SIG_BLOCK, bit(signal));
        set(false);
    }
}

/// Has the kernel block the signal in this thread for a while if the program has blocked it, so that
/// a new thread begins so. Returns whether [`let_go`] is to be called.
pub fn hold() -> bool {
    let Some(signal) = timer::signal().filter(|_| in_this_thread()) else {
        return false;
    };
    set_mask(libc::SIG_BLOCK, bit(signal));
    true
}

/// The kernel does not block the signal in this thread any more, unless the program has got it back.
pub fn let_go() {
    set(true);
    match timer::signal() {
        Some(signal) => _ = set_mask(libc::SIG_UNBLOCK, bit(signal)),
        None => set(false),
    }
}
