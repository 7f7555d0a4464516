//! The hooks for plain accesses and function entries, which compilers call before each. In
//! assembly: a dozen instructions, with the return address on top of the stack, and no register
//! changed except those that any call may change. Contexts: all.
//!
//! A hook stores its slot and then its cursor. A signal handler that interrupts the hook between
//! the two may record its own accesses. The hook's last store then sets the cursor back, and these
//! accesses are lost, but nothing else is (`Buffer::empty` in `sunder-trace`).

use crate::local::{Frame, Local, RECORDER, local, recorded};
use core::arch::{global_asm, naked_asm};
use core::sync::atomic::Ordering;
use sunder_trace::slot::{Key, Slot, tag};

// Writes the slot at rax. The address is in rdi and the instruction on the stack; the top two bytes
// of the key are the tag and the width. The slow path gets a cursor that is at a page border or
// null.
global_asm!(
    ".macro sunder_access name, key",
    ".globl \\name",
    ".type \\name, @function",
    ".balign 16",
    "\\name:",
    "mov rdx, qword ptr [rip + sunder_tracer_local@GOTTPOFF]",
    "mov rax, qword ptr fs:[rdx]",
    "test eax, 4095",
    "jz 2f",
    "1:",
    "mov rcx, qword ptr [rsp]",
    "mov qword ptr [rax], rdi",
    "mov qword ptr [rax + 8], rcx",
    "mov word ptr [rax + 14], \\key",
    "add rax, 16",
    "mov qword ptr fs:[rdx], rax",
    "ret",
    "2:",
    "test rax, rax",
    "jz 3f",
    "call sunder_tracer_turn",
    "test rax, rax",
    "jnz 1b",
    "3:",
    "ret",
    ".size \\name, . - \\name",
    ".endm",
    // tag << 8 | width, as in `sunder_trace::slot`
    ".macro sunder_accesses width",
    "sunder_access __tsan_read\\width, 0x100+\\width",
    "sunder_access __tsan_write\\width, 0x200+\\width",
    "sunder_access __tsan_read_write\\width, 0x300+\\width",
    "sunder_access __tsan_unaligned_read\\width, 0x100+\\width",
    "sunder_access __tsan_unaligned_write\\width, 0x200+\\width",
    "sunder_access __tsan_unaligned_read_write\\width, 0x300+\\width",
    "sunder_access __tsan_volatile_read\\width, 0x100+\\width",
    "sunder_access __tsan_volatile_write\\width, 0x200+\\width",
    "sunder_access __tsan_unaligned_volatile_read\\width, 0x100+\\width",
    "sunder_access __tsan_unaligned_volatile_write\\width, 0x200+\\width",
    ".endm",
    ".text",
    "sunder_accesses 1",
    "sunder_accesses 2",
    "sunder_accesses 4",
    "sunder_accesses 8",
    "sunder_accesses 16",
    "sunder_access __tsan_vptr_read, 0x108",
    "sunder_access __tsan_vptr_update, 0x208",
    // Keeps rdx and rdi. The stack is misaligned by the hook's return address and this function's.
    ".type sunder_tracer_turn, @function",
    "sunder_tracer_turn:",
    "push rdx",
    "push rdi",
    "mov rdi, rax",
    "call {turn}",
    "pop rdi",
    "pop rdx",
    "ret",
    ".size sunder_tracer_turn, . - sunder_tracer_turn",
    turn = sym turn,
);

/// Makes room in the calling thread's buffer; returns the new cursor, or null. Compilers assume
/// that hooks are ordinary functions, which may change vector registers, so there is no need to
/// save these.
unsafe extern "C" fn turn(cursor: *mut Slot) -> *mut Slot {
    // SAFETY: the calling thread's own memory and buffer.
    unsafe {
        let local = local();
        let buffer = crate::local::buffer();
        let next = match buffer.as_ref() {
            Some(buffer) => RECORDER.turn_page(buffer, cursor),
            None => core::ptr::null_mut(),
        };
        if next.is_null() {
            stop(local);
        }
        next
    }
}

/// The calling thread is no longer recorded.
pub unsafe fn stop(local: *mut Local) {
    // SAFETY: the calling thread's own memory.
    unsafe {
        (*local)
            .cursor
            .store(core::ptr::null_mut(), Ordering::Relaxed);
        (*local).top = core::ptr::null_mut();
    }
}

/// A function begins; `caller` is its return address.
///
/// # Safety
/// Called by compiled code.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __tsan_func_entry(caller: *const u8) {
    naked_asm!(
        "mov rdx, qword ptr [rip + sunder_tracer_local@GOTTPOFF]",
        "mov rax, qword ptr fs:[rdx + 8]",
        "test rax, rax",
        "jz 2f",
        "mov qword ptr [rax], rdi",
        "mov qword ptr [rax + 8], rsp",
        "add rax, 16",
        // The last entry is overwritten by all deeper functions.
        "cmp rax, qword ptr fs:[rdx + 24]",
        "jae 2f",
        "mov qword ptr fs:[rdx + 8], rax",
        "2:",
        "ret",
    )
}

/// The innermost function ends.
///
/// # Safety
/// Called by compiled code.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __tsan_func_exit() {
    naked_asm!(
        "mov rdx, qword ptr [rip + sunder_tracer_local@GOTTPOFF]",
        "mov rax, qword ptr fs:[rdx + 8]",
        // The top is null, or the function was entered before the thread was recorded.
        "cmp rax, qword ptr fs:[rdx + 16]",
        "jbe 2f",
        "sub rax, 16",
        "mov qword ptr fs:[rdx + 8], rax",
        "2:",
        "ret",
    )
}

/// Writes the call stack of the calling thread to `to`: `own`, then the return addresses of the
/// functions that it is in, innermost first. Returns how many were written.
pub fn call_stack(own: u64, stack: u64, to: &mut [u64]) -> usize {
    // SAFETY: the calling thread's own memory.
    let local = unsafe { &mut *local() };
    if local.top.is_null() {
        return 0;
    }
    // Frames below the stack pointer were left by `longjmp`.
    // SAFETY: frames between bottom and top are written.
    while local.top > local.bottom && unsafe { (*local.top.sub(1)).stack } < stack {
        // SAFETY: top is above bottom here.
        local.top = unsafe { local.top.sub(1) };
    }
    let mut entries = to.iter_mut();
    let mut count = 0;
    if let Some(entry) = entries.next() {
        *entry = own;
        count = 1;
    }
    let mut frame = local.top;
    for entry in entries {
        if frame <= local.bottom {
            break;
        }
        // SAFETY: frames between bottom and top are written.
        unsafe {
            frame = frame.sub(1);
            *entry = (*frame).caller;
        }
        count += 1;
    }
    count
}

/// The most frames that are recorded of a thread creation.
const WAITING: usize = 8;

/// How far above a frame's stack pointer its return address is searched, in bytes.
const LARGEST_FRAME: u64 = 1 << 20;

/// Calls `each` with the calling thread's frames that wait in a call whose return address lies at
/// `own`, in the form of `sunder_trace::slot::tag::FRAME`: stack pointer and return address.
pub fn waiting_frames(own: *const u64, mut each: impl FnMut(u64, u64)) {
    // Removes frames that `longjmp` has left.
    call_stack(0, own as u64, &mut []);
    // SAFETY: the calling thread's own memory, and the caller's return address.
    let (local, mut returns) = unsafe { (&*local(), *own) };
    let mut pointer = own as u64 + 8;
    let mut frame = local.top;
    for _ in 0..WAITING {
        if frame <= local.bottom {
            break;
        }
        each(pointer, returns);
        // SAFETY: frames between bottom and top are written.
        let entered = unsafe {
            frame = frame.sub(1);
            *frame
        };
        let Some(at) = return_address(&entered, local.stack_end) else {
            pointer = 0;
            break;
        };
        (pointer, returns) = (at + 8, entered.caller);
    }
    each(pointer, 0);
}

/// The stack slot of the return address of a function that has not returned yet.
fn return_address(entered: &Frame, end: u64) -> Option<u64> {
    let from = entered.stack.next_multiple_of(8);
    let to = from.saturating_add(LARGEST_FRAME).min(end);
    let at = |address: u64| {
        let slot: *const u64 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: the slot is between the thread's stack pointer and the end of its stack.
        unsafe { slot.read_volatile() }
    };
    let mut address = from;
    while address < to {
        if at(address) == entered.caller {
            return Some(address);
        }
        address += 8;
    }
    None
}

/// Sets the memory for the calling thread's frames, which only it uses while it is recorded.
pub unsafe fn set_frames(memory: *mut Frame, count: usize) {
    // SAFETY: the calling thread's own memory.
    unsafe {
        let local = &mut *local();
        local.bottom = memory;
        local.top = memory;
        local.limit = memory.wrapping_add(count);
    }
}

/// Records an access to any number of bytes as accesses to whole 64-byte lines and, at the ends,
/// parts of lines.
pub fn range(tag: u8, address: u64, bytes: u64, instruction: u64) {
    let Some(buffer) = recorded() else {
        return;
    };
    let end = address.saturating_add(bytes);
    let mut at = address;
    while at < end {
        let line_end = (at | 63).saturating_add(1).min(end);
        let key = Key::new(tag, (line_end - at) as u8, instruction);
        // SAFETY: the calling thread's buffer.
        unsafe { RECORDER.push(buffer, Slot::new(at, key)) };
        at = line_end;
    }
}

macro_rules! with_caller {
    ($($(#[$doc:meta])* $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)? => $register:literal, $inner:ident;)*) => {$(
        $(#[$doc])*
        ///
        /// # Safety
        /// Called by compiled code.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C" fn $name($($argument: $type),*) $(-> $result)? {
            // Passes the return address on as one more argument.
            naked_asm!(
                concat!("mov ", $register, ", qword ptr [rsp]"),
                "jmp {}",
                sym $inner,
            )
        }
    )*};
}

with_caller! {
    /// A load of any number of bytes.
    __tsan_read_range(address: u64, bytes: u64) => "rdx", read_range;
    /// A store of any number of bytes.
    __tsan_write_range(address: u64, bytes: u64) => "rdx", write_range;
    /// `memcpy` in instrumented code.
    __tsan_memcpy(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 => "rcx", copy;
    /// `memmove` in instrumented code.
    __tsan_memmove(to: *mut u8, from: *const u8, bytes: usize) -> *mut u8 => "rcx", shift;
    /// `memset` in instrumented code.
    __tsan_memset(to: *mut u8, value: i32, bytes: usize) -> *mut u8 => "rcx", set;
}

unsafe extern "C" fn read_range(address: u64, bytes: u64, caller: u64) {
    range(tag::READ, address, bytes, caller);
}

unsafe extern "C" fn write_range(address: u64, bytes: u64, caller: u64) {
    range(tag::WRITE, address, bytes, caller);
}

/// The instruction of an access that a called function makes in its caller's place: the call, by its last
/// byte. What follows the call may belong to another line of the source. Where a hook only announces an
/// access, the access itself follows.
pub(crate) const fn call_before(returns: u64) -> u64 {
    returns.wrapping_sub(1)
}

unsafe extern "C" fn copy(to: *mut u8, from: *const u8, bytes: usize, caller: u64) -> *mut u8 {
    range(tag::READ, from as u64, bytes as u64, call_before(caller));
    range(tag::WRITE, to as u64, bytes as u64, call_before(caller));
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { libc::memcpy(to.cast(), from.cast(), bytes).cast() }
}

unsafe extern "C" fn shift(to: *mut u8, from: *const u8, bytes: usize, caller: u64) -> *mut u8 {
    range(tag::READ, from as u64, bytes as u64, call_before(caller));
    range(tag::WRITE, to as u64, bytes as u64, call_before(caller));
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { libc::memmove(to.cast(), from.cast(), bytes).cast() }
}

unsafe extern "C" fn set(to: *mut u8, value: i32, bytes: usize, caller: u64) -> *mut u8 {
    range(tag::WRITE, to as u64, bytes as u64, call_before(caller));
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { libc::memset(to.cast(), value, bytes).cast() }
}
