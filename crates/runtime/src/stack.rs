//! Numbers for call stacks. Context: normal.

use crate::local::Local;
use core::sync::atomic::Ordering;
use sunder_wire::layout::View;

/// The registers of the caller of an allocation function at its entry.
#[derive(Clone, Copy)]
pub struct Caller {
    /// Points to the return address.
    pub sp: *const u64,
    /// Its frame pointer, if it uses one.
    pub bp: u64,
}

/// The number of the stack of `caller`; 0 if the table is full.
#[inline]
pub fn number(view: &View, _local: *mut Local, caller: Caller) -> u32 {
    // SAFETY: `sp` is the stack pointer at our entry, where the return address
    // lies.
    let frames = [unsafe { *caller.sp }];
    view.intern_stack(&frames).unwrap_or_else(|| {
        view.status().stacks_dropped.fetch_add(1, Ordering::Relaxed);
        0
    })
}
