//! Robust mutexes. When a thread ends, the kernel walks through its list of the robust mutexes that
//! it still holds, which lies in the mutexes themselves, and tells in each that its owner has died.
//! Where a mutex's bytes have moved, it gives up without a word, and other threads wait for ever.
//! So everything goes back before a thread ends that holds such a mutex, and nothing is moved any
//! more. Called by the hook of the call that blocks all signals, which the C library makes at each
//! thread's end.
//!
//! Contexts: all.

use crate::before::give_up;
use crate::peek::word_in_place;
use crate::shared::{anything_moved, is_confined};
use sunder_guest::system;
use sunder_wire::remap::BY_KERNEL;

/// A thread that blocks all these signals may be about to end: all but 32 and 33, which the C library
/// uses itself and may leave open.
const ALL: u64 = !(0b11 << 31);

/// Where the mutex that the thread is about to lock or unlock is in the list's head (`struct
/// robust_list_head` in `linux/futex.h`).
const PENDING: u64 = 16;

/// This thread blocks the signals of `mask`.
pub fn blocks(mask: u64) {
    if mask & ALL == ALL && anything_moved() && !is_confined() && holds_any() {
        give_up(BY_KERNEL);
    }
}

/// Whether this thread holds a robust mutex.
fn holds_any() -> bool {
    let (mut head, mut len) = (0u64, 0usize);
    let arguments = [0, &raw mut head as usize, &raw mut len as usize, 0, 0, 0];
    // SAFETY: the kernel writes two words of ours.
    let result = unsafe { system::call(libc::SYS_get_robust_list, arguments) };
    if result != 0 || head == 0 {
        return false;
    }
    // A list without mutexes leads back to its head.
    word_in_place(head).is_some_and(|first| first != head)
        || word_in_place(head + PENDING).is_some_and(|pending| pending != 0)
}
