//! The calling thread's heap, reached without a call: `thread_local!` in a
//! shared library may allocate. A preloaded library is there from the start,
//! so its variables have a fixed distance from the thread pointer (initial-exec).

use crate::heap::Heap;
use core::arch::{asm, global_asm};

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl sunder_heap_local",
    ".hidden sunder_heap_local",
    ".type sunder_heap_local, @object",
    ".size sunder_heap_local, 16",
    ".balign 16",
    "sunder_heap_local:",
    ".zero 16",
    ".text",
);

/// What a thread knows of its heap.
#[repr(C)]
pub struct Local {
    /// Null before its first allocation and after its end.
    pub heap: *mut Heap,
    /// Rounds of thread-end destructors that it has been through.
    pub rounds: u32,
    /// Its heap has been given back: it must not get another.
    pub ended: u32,
}

/// The calling thread's own words.
#[inline]
pub fn local() -> *mut Local {
    let local: *mut Local;
    // SAFETY: reads the thread pointer and the symbol's distance from it.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + sunder_heap_local@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) local,
            options(nostack, readonly),
        );
    }
    local
}

/// [`Local::heap`] of the calling thread.
#[inline(always)]
pub fn heap() -> *mut Heap {
    let heap: *mut Heap;
    // SAFETY: reads the first word of `sunder_heap_local`. Not `pure`: it
    // changes in a thread's life.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + sunder_heap_local@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) heap,
            options(nostack, readonly, preserves_flags),
        );
    }
    heap
}
