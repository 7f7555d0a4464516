//! What each thread keeps, reached without a call: the cursor of its buffer and
//! its call stack. The layout is known to the assembly in `hooks`. Contexts: all.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_recorder::{Buffer, Place, Recorder};
use sunder_trace::slot::Slot;

/// The process's recording.
pub static RECORDER: Recorder = Recorder::new();

/// A function that was entered.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// The address that it returns to.
    pub caller: u64,
    /// The stack pointer at its entry hook: tells frames that `longjmp` left.
    pub stack: u64,
}

/// Frames that are kept; deeper ones replace each other at the end.
pub const FRAMES: usize = 4096;

/// See the module. Fresh thread-local memory is zero.
#[repr(C)]
pub struct Local {
    /// Null: the thread is not recorded.
    pub place: Place,
    /// The next free frame; null: the thread is not recorded.
    pub top: *mut Frame,
    /// The first frame.
    pub bottom: *mut Frame,
    /// Behind the last one.
    pub limit: *mut Frame,
    /// The thread's buffer.
    buffer: AtomicPtr<Buffer>,
    /// Behind the end of the thread's stack; 0: not known.
    pub stack_end: u64,
    /// The routine of a `pthread_once` that runs.
    pub once: Option<unsafe extern "C" fn()>,
    /// Where the atomic operation that runs returns to.
    pub caller: u64,
    /// Where the return address of the `operator new` lies that was called last.
    pub new_stack: u64,
    /// That return address.
    pub new_caller: u64,
}

// 128 bytes, zeroed, in the thread-local segment (initial-exec: the runtime is
// part of the executable).
global_asm!(
    ".section .tbss,\"awT\",@nobits",
    ".globl sunder_tracer_local",
    ".hidden sunder_tracer_local",
    ".type sunder_tracer_local, @object",
    ".size sunder_tracer_local, 128",
    ".balign 64",
    "sunder_tracer_local:",
    ".zero 128",
    ".text",
);

const _: () = assert!(size_of::<Local>() <= 128);
const _: () = assert!(core::mem::offset_of!(Local, top) == 8);
const _: () = assert!(core::mem::offset_of!(Local, bottom) == 16);
const _: () = assert!(core::mem::offset_of!(Local, limit) == 24);
const _: () = assert!(core::mem::offset_of!(Local, new_stack) == 64);
const _: () = assert!(core::mem::offset_of!(Local, new_caller) == 72);

/// The calling thread's.
#[inline]
pub fn local() -> *mut Local {
    let local: *mut Local;
    // SAFETY: reads the thread pointer and the symbol's distance from it.
    unsafe {
        asm!(
            "mov {0}, qword ptr [rip + sunder_tracer_local@GOTTPOFF]",
            "add {0}, qword ptr fs:[0]",
            out(reg) local,
            options(nostack, readonly),
        );
    }
    local
}

/// The calling thread's buffer while it is recorded.
#[inline]
pub fn recorded() -> Option<&'static Buffer> {
    // SAFETY: the calling thread's own memory; buffers are never unmapped.
    unsafe {
        let local = &*local();
        if local.place.load(Ordering::Relaxed).is_null() {
            return None;
        }
        local.buffer.load(Ordering::Relaxed).as_ref()
    }
}

/// The calling thread's buffer, whatever it does.
pub fn buffer() -> *mut Buffer {
    // SAFETY: the calling thread's own memory.
    unsafe { (*local()).buffer.load(Ordering::Relaxed) }
}

/// Sets the calling thread's buffer.
pub fn set_buffer(buffer: *const Buffer) {
    // SAFETY: the calling thread's own memory.
    unsafe {
        (*local())
            .buffer
            .store(buffer.cast_mut(), Ordering::Relaxed)
    }
}

/// Records what the calling thread is about to release.
#[inline]
pub fn before(slot: Slot) {
    if let Some(buffer) = recorded() {
        // SAFETY: the calling thread's buffer.
        unsafe { RECORDER.push_before(buffer, slot) };
    }
}

/// Records what the calling thread has just acquired.
#[inline]
pub fn after(slot: Slot) {
    if let Some(buffer) = recorded() {
        // SAFETY: the calling thread's buffer.
        unsafe { RECORDER.push_after(buffer, slot) };
    }
}
