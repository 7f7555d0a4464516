//! The allocation functions: each calls the real one and records what came of
//! it. `operator new` and `delete` come here through the C++ library.
//!
//! A free is recorded before it happens and an allocation after it, so that an
//! address that is used again is never allocated before it was freed.

use crate::hooks::call_stack;
use crate::local::{RECORDER, recorded};
use crate::real;
use core::arch::naked_asm;
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use sunder_next::early;
use sunder_trace::record::MOST_FRAMES;
use sunder_trace::slot::{Key, Slot, alignment_code, tag};

/// The alignment of `valloc` and `pvalloc`.
const PAGE: usize = 4096;

/// Who called: return address and stack pointer.
#[repr(C)]
#[derive(Clone, Copy)]
struct Caller {
    stack: *const u64,
}

/// A request for `size` bytes, at multiples of `alignment`, gave `block`.
fn allocated_at(block: *mut c_void, size: usize, alignment: usize, caller: Caller) -> *mut c_void {
    if block.is_null() {
        return block;
    }
    if let Some(buffer) = recorded() {
        let mut frames = [0; MOST_FRAMES];
        // SAFETY: the exported function passed its own stack pointer, at which
        // its return address is.
        let own = unsafe { *caller.stack };
        // `operator new` has no hooks, so its caller is not in the call stack.
        let new = crate::new::caller(caller.stack as u64, own);
        let mut known = 0;
        if let Some(place) = frames.first_mut().filter(|_| new.is_some()) {
            *place = own;
            known = 1;
        }
        let rest = frames.get_mut(known..).unwrap_or_default();
        let count = known + call_stack(new.unwrap_or(own), caller.stack as u64, rest);
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

/// The same for one that asked for no alignment.
fn allocated(block: *mut c_void, size: usize, caller: Caller) -> *mut c_void {
    allocated_at(block, size, 1, caller)
}

fn freeing(block: *mut c_void) {
    if !block.is_null() {
        crate::local::before(Slot::new(block as u64, Key::new(tag::FREE, 0, 0)));
    }
}

macro_rules! exported {
    ($register:literal, $($name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) $(-> $result)? {
            naked_asm!(concat!("mov ", $register, ", rsp"), "jmp {}", sym inner::$name)
        }
    )*};
}

exported! { "rsi",
    malloc(size: usize) -> *mut c_void;
    valloc(size: usize) -> *mut c_void;
    pvalloc(size: usize) -> *mut c_void;
}
exported! { "rdx",
    calloc(count: usize, size: usize) -> *mut c_void;
    realloc(block: *mut c_void, size: usize) -> *mut c_void;
    aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
    memalign(alignment: usize, size: usize) -> *mut c_void;
}
exported! { "rcx",
    reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
    posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn free(block: *mut c_void) {
    if block.is_null() || early::owns(block) {
        return;
    }
    freeing(block);
    if let Some(real) = real::free() {
        // SAFETY: handed on.
        unsafe { real(block) }
    }
}

mod inner {
    use super::*;

    pub unsafe extern "C-unwind" fn malloc(size: usize, caller: Caller) -> *mut c_void {
        match real::malloc() {
            // SAFETY: handed on, here and below.
            Some(real) => allocated(unsafe { real(size) }, size, caller),
            None => early::allocate(size, 1).cast(),
        }
    }

    pub unsafe extern "C-unwind" fn valloc(size: usize, caller: Caller) -> *mut c_void {
        let Some(real) = real::valloc() else {
            return null_mut();
        };
        // SAFETY: handed on.
        allocated_at(unsafe { real(size) }, size, PAGE, caller)
    }

    pub unsafe extern "C-unwind" fn pvalloc(size: usize, caller: Caller) -> *mut c_void {
        let Some(real) = real::pvalloc() else {
            return null_mut();
        };
        // SAFETY: handed on.
        allocated_at(unsafe { real(size) }, size, PAGE, caller)
    }

    pub unsafe extern "C-unwind" fn calloc(
        count: usize,
        size: usize,
        caller: Caller,
    ) -> *mut c_void {
        match real::calloc() {
            Some(real) => {
                // SAFETY: handed on.
                let block = unsafe { real(count, size) };
                allocated(block, count.wrapping_mul(size), caller)
            }
            None => early::allocate(count.saturating_mul(size), 1).cast(),
        }
    }

    pub unsafe extern "C-unwind" fn aligned_alloc(
        alignment: usize,
        size: usize,
        caller: Caller,
    ) -> *mut c_void {
        let Some(real) = real::aligned_alloc() else {
            return null_mut();
        };
        // SAFETY: handed on.
        allocated_at(unsafe { real(alignment, size) }, size, alignment, caller)
    }

    pub unsafe extern "C-unwind" fn memalign(
        alignment: usize,
        size: usize,
        caller: Caller,
    ) -> *mut c_void {
        let Some(real) = real::memalign() else {
            return null_mut();
        };
        // SAFETY: handed on.
        allocated_at(unsafe { real(alignment, size) }, size, alignment, caller)
    }

    pub unsafe extern "C-unwind" fn posix_memalign(
        block: *mut *mut c_void,
        alignment: usize,
        size: usize,
        caller: Caller,
    ) -> c_int {
        let Some(real) = real::posix_memalign() else {
            return libc::ENOMEM;
        };
        // SAFETY: handed on.
        let result = unsafe { real(block, alignment, size) };
        if result == 0 {
            // SAFETY: it succeeded, so the place is valid.
            allocated_at(unsafe { *block }, size, alignment, caller);
        }
        result
    }

    pub unsafe extern "C-unwind" fn realloc(
        block: *mut c_void,
        size: usize,
        caller: Caller,
    ) -> *mut c_void {
        let Some(real) = real::realloc() else {
            return null_mut();
        };
        if early::owns(block) {
            // SAFETY: the block is the arena's; not more is read than it has.
            return unsafe { leave_arena(block, size) };
        }
        // Recorded before, because afterwards the block may be another thread's.
        // If it fails, the block lives on: it is allocated again.
        freeing(block);
        // SAFETY: handed on.
        let new = unsafe { real(block, size) };
        allocated(new, size, caller)
    }

    pub unsafe extern "C-unwind" fn reallocarray(
        block: *mut c_void,
        count: usize,
        size: usize,
        caller: Caller,
    ) -> *mut c_void {
        let Some(real) = real::reallocarray() else {
            return null_mut();
        };
        if early::owns(block) {
            // SAFETY: as in `realloc`.
            return unsafe { leave_arena(block, count.saturating_mul(size)) };
        }
        freeing(block);
        // SAFETY: handed on.
        let new = unsafe { real(block, count, size) };
        allocated(new, count.wrapping_mul(size), caller)
    }
}

unsafe fn leave_arena(block: *mut c_void, size: usize) -> *mut c_void {
    let Some(malloc) = real::malloc() else {
        return null_mut();
    };
    // SAFETY: the block is the arena's, and the new one has `size` bytes.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            early::move_to(new.cast(), size, block.cast());
        }
        new
    }
}
