//! The hooks for plain accesses and function entries, which compilers call
//! before each. In assembly: a dozen instructions, the return address at hand,
//! and no register changed but those that any call may change. Contexts: all.
//!
//! A hook stores its slot and then its cursor. A signal handler that comes
//! between may record its own accesses; the last store then takes the cursor back
//! and these are lost, but nothing else is (`Buffer::empty` in `sunder-trace`).

use crate::local::{Frame, Local, RECORDER, local, recorded};
use core::arch::{global_asm, naked_asm};
use core::sync::atomic::Ordering;
use sunder_trace::slot::{Key, Slot, tag};

// The slot at rax: the address in rdi, the instruction on the stack, and in the
// top two bytes of the key the tag and the width. The slow path sees a cursor at
// a page's border, or null.
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
    // Keeps rdx and rdi; the stack is misaligned by the hook's return address
    // and ours.
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

/// Makes room in the calling thread's buffer; the new cursor or null. Saves the
/// vector registers, because hooks keep to the compilers' assumption that they
/// are ordinary functions, which may change them: nothing to save.
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

/// The calling thread is not recorded any more.
pub unsafe fn stop(local: *mut Local) {
    // SAFETY: the calling thread's own memory.
    unsafe {
        (*local)
            .place
            .store(core::ptr::null_mut(), Ordering::Relaxed);
        (*local).top = core::ptr::null_mut();
    }
}

/// A function begins; its caller's address is given.
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
        // The last place is written again and again by what is deeper.
        "cmp rax, qword ptr fs:[rdx + 24]",
        "jae 2f",
        "mov qword ptr fs:[rdx + 8], rax",
        "2:",
        "ret",
    )
}

/// The function that was entered last ends.
///
/// # Safety
/// Called by compiled code.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C" fn __tsan_func_exit() {
    naked_asm!(
        "mov rdx, qword ptr [rip + sunder_tracer_local@GOTTPOFF]",
        "mov rax, qword ptr fs:[rdx + 8]",
        // Null, or functions that were entered before the thread was recorded.
        "cmp rax, qword ptr fs:[rdx + 16]",
        "jbe 2f",
        "sub rax, 16",
        "mov qword ptr fs:[rdx + 8], rax",
        "2:",
        "ret",
    )
}

/// The return addresses of the functions that the calling thread is in, the
/// innermost first, `own` before them: how many were put into `to`.
pub fn call_stack(own: u64, stack: u64, to: &mut [u64]) -> usize {
    // SAFETY: the calling thread's own memory.
    let local = unsafe { &mut *local() };
    if local.top.is_null() {
        return 0;
    }
    // Frames below the stack pointer were left by `longjmp`.
    // SAFETY: frames between bottom and top were written.
    while local.top > local.bottom && unsafe { (*local.top.sub(1)).stack } < stack {
        // SAFETY: not before the bottom.
        local.top = unsafe { local.top.sub(1) };
    }
    let mut places = to.iter_mut();
    let mut count = 0;
    if let Some(place) = places.next() {
        *place = own;
        count = 1;
    }
    let mut frame = local.top;
    for place in places {
        if frame <= local.bottom {
            break;
        }
        // SAFETY: as above.
        unsafe {
            frame = frame.sub(1);
            *place = (*frame).caller;
        }
        count += 1;
    }
    count
}

/// Frames that are told of a thread creation.
const WAITING: usize = 8;

/// How far above its stack pointer a frame's return address is looked for.
const LARGEST_FRAME: u64 = 1 << 20;

/// Tells `each` the frames of the calling thread that wait in a call whose return address
/// lies at `own`, as `sunder_trace::slot::tag::FRAME` has them: stack pointer and return
/// address.
pub fn waiting_frames(own: *const u64, mut each: impl FnMut(u64, u64)) {
    // Leaves out what `longjmp` left.
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
        // SAFETY: frames between bottom and top were written.
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

/// Where on the stack the return address of a function lies that has not returned.
fn return_address(entered: &Frame, end: u64) -> Option<u64> {
    let from = entered.stack.next_multiple_of(8);
    let to = from.saturating_add(LARGEST_FRAME).min(end);
    let at = |address: u64| {
        let place: *const u64 = core::ptr::with_exposed_provenance(address as usize);
        // SAFETY: between the thread's stack pointer and the end of its stack.
        unsafe { place.read_volatile() }
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

/// Memory for the calling thread's frames, its own for as long as it is
/// recorded.
pub unsafe fn set_frames(memory: *mut Frame, count: usize) {
    // SAFETY: the calling thread's own memory.
    unsafe {
        let local = &mut *local();
        local.bottom = memory;
        local.top = memory;
        local.limit = memory.wrapping_add(count);
    }
}

/// Records an access to any number of bytes as accesses of whole words and, at
/// the ends, parts of 64-byte lines.
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
            // Hands the address that it returns to on as one more argument.
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

unsafe extern "C" fn copy(to: *mut u8, from: *const u8, bytes: usize, caller: u64) -> *mut u8 {
    range(tag::READ, from as u64, bytes as u64, caller);
    range(tag::WRITE, to as u64, bytes as u64, caller);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { libc::memcpy(to.cast(), from.cast(), bytes).cast() }
}

unsafe extern "C" fn shift(to: *mut u8, from: *const u8, bytes: usize, caller: u64) -> *mut u8 {
    range(tag::READ, from as u64, bytes as u64, caller);
    range(tag::WRITE, to as u64, bytes as u64, caller);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { libc::memmove(to.cast(), from.cast(), bytes).cast() }
}

unsafe extern "C" fn set(to: *mut u8, value: i32, bytes: usize, caller: u64) -> *mut u8 {
    range(tag::WRITE, to as u64, bytes as u64, caller);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { libc::memset(to.cast(), value, bytes).cast() }
}

/// Called by each compiled file's constructor.
#[unsafe(no_mangle)]
pub extern "C" fn __tsan_init() {
    crate::start::start();
}
