//! Two words of thread-local storage, reached without a call. Contexts: all.
//!
//! `thread_local!` in a shared library calls `__tls_get_addr`, which is slow
//! and may allocate. A preloaded library is there from the start, so its
//! variables have a fixed distance from the thread pointer (initial-exec).

use crate::thread::Thread;
use core::arch::{asm, global_asm};

global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl sunder_local",
    ".hidden sunder_local",
    ".type sunder_local, @object",
    ".size sunder_local, 16",
    ".balign 16",
    "sunder_local:",
    ".zero 16",
    ".text",
);

/// What each thread knows of itself.
#[repr(C)]
pub struct Local {
    /// The thread's tables; null before it is registered and after its end.
    pub thread: *mut Thread,
    /// Its index in the segment, kept beyond the end of its tables.
    pub index: u32,
    /// [`Phase`] bits.
    pub phase: u32,
}

/// Inside the runtime's slow paths: allocations that these cause are not ours
/// to look at.
pub const BUSY: u32 = 1;
/// The thread has given its tables back.
pub const ENDED: u32 = 2;

/// The calling thread's own words.
#[inline]
pub fn local() -> *mut Local {
    let local: *mut Local;
    // SAFETY: reads the thread pointer and the symbol's distance from it.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + sunder_local@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) local,
            options(nostack, readonly),
        );
    }
    local
}

/// [`Local::thread`] of the calling thread, in one load.
#[inline]
pub fn thread() -> *mut Thread {
    let thread: *mut Thread;
    // SAFETY: reads the first word of `sunder_local`.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + sunder_local@GOTTPOFF]",
            "mov {0}, qword ptr fs:[{0}]",
            out(reg) thread,
            options(nostack, readonly, preserves_flags),
        );
    }
    thread
}

/// Marks the thread as busy until dropped.
pub struct Busy(*mut Local);

impl Busy {
    /// Nothing if the thread is busy already.
    pub fn enter() -> Option<Self> {
        let local = local();
        // SAFETY: a thread's own words, valid while it runs; signal handlers
        // that come between leave them as they found them.
        unsafe {
            if (*local).phase & BUSY != 0 {
                return None;
            }
            (*local).phase |= BUSY;
        }
        Some(Self(local))
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        // SAFETY: guards are not sent to other threads (raw pointer inside).
        unsafe { (*self.0).phase &= !BUSY };
    }
}
