//! The library that is preloaded into a program that runs under the emulator: it reports
//! allocations and synchronisation, which the plugin (`crates/inside/emulator`) can't see in
//! instructions, to the plugin by the special store of `sunder_trace::announce` (the bell).
//!
//! Loaded by the program's dynamic linker, because `sunder trace --via emulated` names it in
//! `LD_PRELOAD`. It runs inside the program: each function calls the real one. It must not change
//! its result or `errno`, panic, or allocate.
//!
//! - `heap`, `synchronise`: interposed functions
//! - `real`: the functions that ours interpose
//! - `start`: removes the library's name from the environment

mod heap;
mod real;
mod start;
mod synchronise;

use core::arch::asm;
use sunder_trace::announce::{BELL_DISTANCE, BELL_MARK, Record, kind};
use sunder_trace::slot::Sync;

/// Sends a report to the plugin.
#[inline]
fn tell(kind: u64, address: u64, detail: u64) {
    let mut record = Record {
        mark: 0,
        kind,
        address,
        detail,
    };
    // SAFETY: stores to the record's first eight bytes. The registers are fixed because the plugin
    // recognises the instruction by its bytes.
    unsafe {
        asm!(
            "mov qword ptr [rdi + {distance}], {mark}",
            distance = const BELL_DISTANCE,
            mark = const BELL_MARK,
            in("rdi") (&raw mut record).cast::<u8>().wrapping_offset(-(BELL_DISTANCE as isize)),
            options(nostack, preserves_flags),
        );
    }
}

/// Reports a release by the calling thread, before it happens.
#[inline]
fn before(sync: Sync, object: u64) {
    tell(kind::BEFORE, object, sync as u64);
}

/// Reports an acquire by the calling thread, after it happened.
#[inline]
fn after(sync: Sync, object: u64) {
    tell(kind::AFTER, object, sync as u64);
}
