//! The allocation functions: each calls the real one and records the result. `operator new` and
//! `delete` get here through the C++ library. Contexts: pre-init, normal, post-fork.
//!
//! That library is not instrumented, so a call of `operator new` would be missing in the call
//! stack. Ours keeps its return address and jumps to the library's. In assembly, with a jump
//! instead of a call, because an exception must find no stack frame of ours. The symbols are weak,
//! so a program's own functions come first.

use crate::hooks::call_stack;
use crate::local::{RECORDER, local, recorded};
use core::arch::global_asm;
use core::ffi::{CStr, c_char, c_void};
use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use sunder_guest::allocator::{self, Caller, Watch};
use sunder_recorder::MOST_FRAMES;
use sunder_trace::slot::{Key, Slot, alignment_code, tag};

sunder_guest::watched_heap!(Blocks);

/// Records the program's blocks with their call stacks.
struct Blocks;

impl Watch for Blocks {
    fn allocated(block: *mut c_void, size: usize, alignment: usize, caller: Caller) -> *mut c_void {
        if block.is_null() {
            return block;
        }
        if let Some(buffer) = recorded() {
            let mut frames = [0; MOST_FRAMES];
            // SAFETY: the exported function passed its own stack pointer, at which its return
            // address lies.
            let own = unsafe { *caller.sp };
            let stack = caller.sp as u64;
            // `operator new` has no hooks, so its caller is not in the call stack.
            let new = operator_new_caller(stack, own);
            let mut known = 0;
            if let Some(first) = frames.first_mut().filter(|_| new.is_some()) {
                *first = own;
                known = 1;
            }
            let rest = frames.get_mut(known..).unwrap_or_default();
            let count = known + call_stack(new.unwrap_or(own), stack, rest);
            // SAFETY: the calling thread's buffer.
            unsafe {
                let stack = RECORDER.stack(buffer, frames.get(..count).unwrap_or_default());
                let code = alignment_code(alignment);
                let size = Slot::new(size as u64, Key::new(tag::SIZE, code, u64::from(stack)));
                RECORDER.push_after(buffer, size);
                RECORDER.push(
                    buffer,
                    Slot::new(block as u64, Key::new(tag::ALLOCATE, 0, 0)),
                );
            }
        }
        block
    }

    fn freeing(block: *mut c_void) {
        if !block.is_null() {
            crate::local::before(Slot::new(block as u64, Key::new(tag::FREE, 0, 0)));
        }
    }
}

/// The most bytes between the return addresses of `operator new` and of the `malloc` that it calls:
/// its frame, and that of another `operator new` that called it.
const NEAR: u64 = 256;

/// The most bytes of the code of one `operator new`.
const CODE: u64 = 512;

const COUNT: usize = 8;

/// In the order of the table in the assembly.
const NAMES: [&CStr; COUNT] = [
    c"_Znwm",
    c"_Znam",
    c"_ZnwmRKSt9nothrow_t",
    c"_ZnamRKSt9nothrow_t",
    c"_ZnwmSt11align_val_t",
    c"_ZnamSt11align_val_t",
    c"_ZnwmSt11align_val_tRKSt9nothrow_t",
    c"_ZnamSt11align_val_tRKSt9nothrow_t",
];

static REAL: [AtomicPtr<c_void>; COUNT] = [const { AtomicPtr::new(null_mut()) }; COUNT];

// Changes only registers that hold no argument. If such functions call each other, the outermost
// one's return address is kept: the address that still lies where it was found, a short distance
// above.
global_asm!(
    ".macro sunder_new name, index",
    ".weak \\name",
    ".type \\name, @function",
    ".balign 16",
    "\\name:",
    "mov r10, qword ptr [rip + sunder_tracer_local@GOTTPOFF]",
    "mov rax, qword ptr fs:[r10 + 64]",
    "mov r11, rax",
    "sub r11, rsp",
    "dec r11",
    "cmp r11, {near}",
    "jae 1f",
    "mov rax, qword ptr [rax]",
    "cmp rax, qword ptr fs:[r10 + 72]",
    "je 2f",
    "1:",
    "mov qword ptr fs:[r10 + 64], rsp",
    "mov rax, qword ptr [rsp]",
    "mov qword ptr fs:[r10 + 72], rax",
    "2:",
    "lea rax, [rip + {real}]",
    "mov rax, qword ptr [rax + 8 * \\index]",
    "test rax, rax",
    "jz 3f",
    "jmp rax",
    "3:",
    "push rdi",
    "push rsi",
    "push rdx",
    "mov edi, \\index",
    "call {find}",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "jmp rax",
    ".size \\name, . - \\name",
    ".endm",
    ".text",
    "sunder_new _Znwm, 0",
    "sunder_new _Znam, 1",
    "sunder_new _ZnwmRKSt9nothrow_t, 2",
    "sunder_new _ZnamRKSt9nothrow_t, 3",
    "sunder_new _ZnwmSt11align_val_t, 4",
    "sunder_new _ZnamSt11align_val_t, 5",
    "sunder_new _ZnwmSt11align_val_tRKSt9nothrow_t, 6",
    "sunder_new _ZnamSt11align_val_tRKSt9nothrow_t, 7",
    near = const NEAR,
    real = sym REAL,
    find = sym find_operator,
);

unsafe extern "C" fn find_operator(index: usize) -> *mut c_void {
    let (Some(slot), Some(name)) = (REAL.get(index), NAMES.get(index)) else {
        crate::real::missing();
    };
    // If a name is not found, the dynamic linker allocates a message and frees it at the next
    // look-up. So `malloc` and `free` are looked up first.
    let _ = (allocator::real::malloc(), allocator::real::free());
    // SAFETY: the name is a C string.
    let mut found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast::<c_char>()) };
    if found.is_null() {
        // The C++ library is linked into the program, and its function was left out in favour of
        // ours.
        found = match index {
            0..=3 => (new_block as unsafe extern "C" fn(usize) -> *mut c_void) as *mut c_void,
            _ => {
                (new_aligned_block as unsafe extern "C" fn(usize, usize) -> *mut c_void)
                    as *mut c_void
            }
        };
    }
    slot.store(found, Ordering::Relaxed);
    found
}

unsafe extern "C" fn new_block(size: usize) -> *mut c_void {
    // SAFETY: `malloc` accepts any size.
    or_abort(unsafe { malloc(size.max(1)) })
}

unsafe extern "C" fn new_aligned_block(size: usize, alignment: usize) -> *mut c_void {
    let size = size.max(1).next_multiple_of(alignment.max(1));
    // SAFETY: `aligned_alloc` accepts any size; the compiler passes a valid alignment.
    or_abort(unsafe { aligned_alloc(alignment, size) })
}

/// Aborts without a block: no exception can be thrown from here.
fn or_abort(block: *mut c_void) -> *mut c_void {
    if block.is_null() {
        crate::real::missing();
    }
    block
}

/// The return address of the `operator new` that called `malloc`, whose return address `returns`
/// lies at `stack`; `None` if no such function called it.
fn operator_new_caller(stack: u64, returns: u64) -> Option<u64> {
    // SAFETY: the calling thread's own memory.
    let (at, noted) = unsafe { ((*local()).new_stack, (*local()).new_caller) };
    let distance = at.wrapping_sub(stack).wrapping_sub(1);
    if distance >= 2 * NEAR || at % 8 != 0 {
        return None;
    }
    let slot: *const u64 = core::ptr::with_exposed_provenance(at as usize);
    // SAFETY: the slot is above the stack pointer, in memory that this thread's frames have used.
    if unsafe { slot.read_volatile() } != noted {
        return None;
    }
    let of_new = REAL.iter().any(|real| {
        let start = real.load(Ordering::Relaxed).addr() as u64;
        start != 0 && returns.wrapping_sub(start) < CODE
    });
    of_new.then_some(noted)
}
