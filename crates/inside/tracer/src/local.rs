//! The thread-local data of the hooks, which they access without a call: the cursor of its buffer
//! and its call stack. The layout is known to the assembly in `hooks`. Contexts: all.

use core::arch::{asm, global_asm};
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_recorder::{Buffer, Cursor, Recorder};
use sunder_trace::slot::Slot;

/// The process's recording.
pub static RECORDER: Recorder = Recorder::new();

/// A function that was entered and has not returned.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Frame {
    /// Its return address.
    pub caller: u64,
    /// The stack pointer in its entry hook; it shows which frames `longjmp` has left.
    pub stack: u64,
}

/// The most frames that are kept; deeper ones all use the last entry.
pub const FRAMES: usize = 4096;

/// The data of one thread. New thread-local memory is zero.
#[repr(C)]
pub struct Local {
    /// The cursor; null if the thread is not recorded.
    pub cursor: Cursor,
    /// The next free frame; null if the thread is not recorded.
    pub top: *mut Frame,
    /// The first frame.
    pub bottom: *mut Frame,
    /// One past the last frame.
    pub limit: *mut Frame,
    /// The thread's buffer.
    buffer: AtomicPtr<Buffer>,
    /// The end of the thread's stack; 0 if it is not known.
    pub stack_end: u64,
    /// The routine of a `pthread_once` that is running.
    pub once: Option<unsafe extern "C" fn()>,
    /// The return address of the atomic operation that is running.
    pub caller: u64,
    /// The stack slot of the return address of the last call of `operator new`.
    pub new_stack: u64,
    /// That return address.
    pub new_caller: u64,
}

// 128 bytes of zeroes in the thread-local segment (initial-exec, because the runtime is part of the
// executable).
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

/// The calling thread's data.
#[inline]
pub fn local() -> *mut Local {
    let local: *mut Local;
    // SAFETY: reads the thread pointer and the symbol's offset from it.
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
        if local.cursor.load(Ordering::Relaxed).is_null() {
            return None;
        }
        local.buffer.load(Ordering::Relaxed).as_ref()
    }
}

/// The calling thread's buffer, even if it is not recorded now.
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

/// Records a release by the calling thread; called before it happens.
#[inline]
pub fn before(slot: Slot) {
    if let Some(buffer) = recorded() {
        // SAFETY: the calling thread's buffer.
        unsafe { RECORDER.push_before(buffer, slot) };
    }
}

/// Records an acquire by the calling thread; called after it happened.
#[inline]
pub fn after(slot: Slot) {
    if let Some(buffer) = recorded() {
        // SAFETY: the calling thread's buffer.
        unsafe { RECORDER.push_after(buffer, slot) };
    }
}
