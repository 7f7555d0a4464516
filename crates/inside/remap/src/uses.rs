//! Memory that kernel calls of the program use is moved back before a call. Which memory that is
//! says `sunder_kernel`.
//!
//! Contexts: all.

use crate::peek::{read_in_place, word_in_place};
use crate::program::BIT;
use crate::{area, shared, under_way};
use sunder_kernel::{KernelCall, Use};
use sunder_wire::remap::{BY_KERNEL, BY_SIGNALS};

/// Moves everything back that the call will use.
pub fn move_back(call: &KernelCall) {
    if !shared::anything_moved() {
        return;
    }
    call.any_use(&read_in_place, &mut |used| {
        match used {
            Use::Memory { at, len } => area::roll_back_in(at, len, BY_KERNEL),
            Use::Mask(at) => {
                area::roll_back_in(at, 8, BY_KERNEL);
                // Handlers that run while the thread waits have SIGSEGV blocked.
                if word_in_place(at).is_none_or(|mask| mask & BIT != 0) {
                    area::roll_back_all(BY_SIGNALS);
                }
            }
            Use::Anything => area::roll_back_all(BY_KERNEL),
        }
        false
    });
}

/// Moves everything back that the call will use, and keeps it in place until
/// [`under_way::end`].
pub fn begin(call: KernelCall) -> usize {
    let place = under_way::begin(&call);
    move_back(&call);
    place
}

/// As [`begin`] for these bytes alone, whatever the call does with them.
pub fn begin_bytes(at: u64, len: u64, reason: u32) -> usize {
    let place = under_way::begin_bytes(at, len);
    if shared::anything_moved() {
        area::roll_back_in(at, len, reason);
    }
    place
}
