//! A thread that is kept off its own stack: while it waits in a kernel call, pages of its stack can be
//! moved, since it waits on a stack of ours and puts the pages back before it returns to its own. A
//! part of the control file ([`crate::remap::Control`]); `docs/design/remap.md`, "Stacks".
//!
//! Atomic words, as everything in that file.

use core::sync::atomic::{AtomicU32, AtomicU64};

/// The most threads that can be kept off their stacks at a time.
pub const PARKED: usize = 4;

/// What a parked thread needs to go on. Its code is `sunder_park` in the library, which finds this
/// through `rbx`. All other registers but `rsp` are the thread's own, as in the kernel call in which
/// it waits.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Parked {
    /// Where the thread's own code goes on: the address behind the instruction of its kernel call.
    pub after: AtomicU64,
    /// The thread's own stack pointer.
    pub rsp: AtomicU64,
    /// The thread's own `rbx`.
    pub rbx: AtomicU64,
    /// An address without access rights. The thread reads there after the call, so that the handler
    /// of faults puts the pages back.
    pub guard: AtomicU64,
    /// Where the thread's own stack begins.
    pub low: AtomicU64,
    /// Where it ends.
    pub high: AtomicU64,
    /// Where a parked thread stands: the address behind the instruction of the library's kernel call.
    pub called: AtomicU64,
    /// The thread; 0 as long as none was parked here.
    pub thread: AtomicU32,
    /// Always zero.
    pub reserved: AtomicU32,
}
