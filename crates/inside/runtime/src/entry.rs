//! The functions that the target calls instead of the C library's. Contexts:
//! pre-init, normal, post-fork.
//!
//! Each exported function is three instructions: it hands its caller's stack
//! and frame pointer on to the function of the same name in [`inner`] and
//! leaves no frame of its own.

use crate::real;
use crate::record::{self, Before};
use crate::stack::Caller;
use crate::state;
use core::ffi::{c_int, c_void};
use sunder_next::early as arena;
use sunder_wire::large::LargeBlock;
use sunder_wire::layout::View;

/// The exported functions. Not in test binaries: these keep their own malloc.
#[cfg(not(test))]
mod exported {
    use super::inner;
    use core::arch::naked_asm;
    use core::ffi::{c_int, c_void};

    macro_rules! forward {
        ($sp:literal, $bp:literal, $($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {$(
            /// Interposed; see the C library's manual.
            ///
            /// # Safety
            /// As the C library demands.
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> $result {
                naked_asm!(
                    concat!("mov ", $sp, ", rsp"),
                    concat!("mov ", $bp, ", rbp"),
                    "jmp {}",
                    sym inner::$name,
                )
            }
        )*};
    }

    forward! { "rsi", "rdx",
        malloc(size: usize) -> *mut c_void;
        valloc(size: usize) -> *mut c_void;
        pvalloc(size: usize) -> *mut c_void;
    }
    forward! { "rdx", "rcx",
        calloc(count: usize, size: usize) -> *mut c_void;
        realloc(block: *mut c_void, size: usize) -> *mut c_void;
        aligned_alloc(alignment: usize, size: usize) -> *mut c_void;
        memalign(alignment: usize, size: usize) -> *mut c_void;
    }
    forward! { "rcx", "r8",
        reallocarray(block: *mut c_void, count: usize, size: usize) -> *mut c_void;
        posix_memalign(block: *mut *mut c_void, alignment: usize, size: usize) -> c_int;
    }

    /// Interposed. Only its stack and arguments matter to the unloaded code.
    ///
    /// # Safety
    /// As the C library demands.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn dlclose(library: *mut c_void) -> c_int {
        // SAFETY: handed on.
        let result = crate::real::dlclose().map_or(-1, |real| unsafe { real(library) });
        crate::frames::forget();
        result
    }

    /// Interposed; see the C library's manual.
    ///
    /// # Safety
    /// As the C library demands.
    #[unsafe(no_mangle)]
    pub unsafe extern "C-unwind" fn free(block: *mut c_void) {
        // SAFETY: handed on.
        unsafe { inner::free(block) }
    }
}

#[inline]
fn recorded(block: *mut c_void, size: usize, caller: Caller) -> *mut c_void {
    record::allocated(block, size as u64, caller)
}

fn out_of_memory() -> *mut c_void {
    // SAFETY: the C library's thread-local errno.
    unsafe { *libc::__errno_location() = libc::ENOMEM };
    core::ptr::null_mut()
}

/// Serves an allocation before the real function is known.
#[cold]
fn early(size: Option<usize>, alignment: usize) -> *mut c_void {
    let block = size.map_or(core::ptr::null_mut(), |s| arena::allocate(s, alignment));
    if block.is_null() {
        out_of_memory()
    } else {
        block.cast()
    }
}

/// What the exported functions do, once they know who called.
mod inner {
    use super::*;

    pub unsafe extern "C-unwind" fn malloc(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
        let Some(real) = real::malloc() else {
            return early(Some(size), 16);
        };
        // SAFETY: handed on.
        recorded(unsafe { real(size) }, size, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn valloc(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
        let Some(real) = real::valloc() else {
            return early(Some(size), 4096);
        };
        // SAFETY: handed on.
        recorded(unsafe { real(size) }, size, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn pvalloc(size: usize, sp: *const u64, bp: u64) -> *mut c_void {
        let Some(real) = real::pvalloc() else {
            return early(size.checked_next_multiple_of(4096), 4096);
        };
        // SAFETY: handed on.
        recorded(unsafe { real(size) }, size, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn calloc(
        count: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let Some(real) = real::calloc() else {
            // The arena's memory is zero and never used twice.
            return early(count.checked_mul(size), 16);
        };
        // SAFETY: handed on.
        let block = unsafe { real(count, size) };
        recorded(block, count.wrapping_mul(size), Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn aligned_alloc(
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let Some(real) = real::aligned_alloc() else {
            return early(Some(size), alignment);
        };
        // SAFETY: handed on.
        recorded(unsafe { real(alignment, size) }, size, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn memalign(
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let Some(real) = real::memalign() else {
            return early(Some(size), alignment);
        };
        // SAFETY: handed on.
        recorded(unsafe { real(alignment, size) }, size, Caller { sp, bp })
    }

    pub unsafe extern "C-unwind" fn posix_memalign(
        block: *mut *mut c_void,
        alignment: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> c_int {
        let Some(real) = real::posix_memalign() else {
            return libc::ENOMEM;
        };
        // SAFETY: handed on.
        let result = unsafe { real(block, alignment, size) };
        if result == 0 {
            // SAFETY: the function succeeded, so `block` was a valid place.
            recorded(unsafe { *block }, size, Caller { sp, bp });
        }
        result
    }

    pub unsafe extern "C-unwind" fn realloc(
        block: *mut c_void,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        if arena::owns(block) {
            // SAFETY: the block is the arena's.
            return unsafe { move_from_arena(block, size, caller) };
        }
        let Some(real) = real::realloc() else {
            return early(block.is_null().then_some(size), 16);
        };
        // SAFETY: handed on.
        reallocated(block, size, caller, || unsafe { real(block, size) })
    }

    pub unsafe extern "C-unwind" fn reallocarray(
        block: *mut c_void,
        count: usize,
        size: usize,
        sp: *const u64,
        bp: u64,
    ) -> *mut c_void {
        let caller = Caller { sp, bp };
        let total = count.checked_mul(size);
        if arena::owns(block) {
            return match total {
                // SAFETY: the block is the arena's.
                Some(total) => unsafe { move_from_arena(block, total, caller) },
                None => out_of_memory(),
            };
        }
        let Some(real) = real::reallocarray() else {
            return early(total.filter(|_| block.is_null()), 16);
        };
        reallocated(block, total.unwrap_or(usize::MAX), caller, || {
            // SAFETY: handed on.
            unsafe { real(block, count, size) }
        })
    }

    #[inline]
    pub unsafe fn free(block: *mut c_void) {
        if record::freed_at_once(block as u64)
            && let Some(real) = real::free()
        {
            // SAFETY: handed on.
            return unsafe { real(block) };
        }
        // SAFETY: handed on.
        unsafe { free_slowly(block) }
    }

    #[cold]
    #[inline(never)]
    unsafe fn free_slowly(block: *mut c_void) {
        // A block that had a live record is the real allocator's, so the
        // question whether it is the arena's is only asked here.
        if arena::owns(block) {
            return;
        }
        if !block.is_null()
            && let Some(view) = state::heap()
        {
            record::freeing(view, block as u64);
        }
        if let Some(real) = real::free() {
            // SAFETY: handed on.
            unsafe { real(block) }
        }
    }
}

/// Moves a block of the early arena into the real heap.
///
/// # Safety
/// `block` is the arena's.
#[cold]
unsafe fn move_from_arena(block: *mut c_void, size: usize, caller: Caller) -> *mut c_void {
    let Some(malloc) = real::malloc() else {
        return early(None, 16);
    };
    // SAFETY: malloc may be called with any size; the old block is the arena's
    // and the new one is at least as large as what is copied.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            arena::move_to(new.cast(), size, block.cast());
        }
        recorded(new, size, caller)
    }
}

/// A `realloc` of any kind. Once the real function has freed the old block its
/// address may be another thread's, so the end is recorded before the call and
/// taken back if the call fails.
fn reallocated(
    block: *mut c_void,
    size: usize,
    caller: Caller,
    call: impl FnOnce() -> *mut c_void,
) -> *mut c_void {
    let Some(view) = state::heap() else {
        return call();
    };
    if block.is_null() {
        return recorded(call(), size, caller);
    }
    let old = block as u64;
    let large = large_before(&view, old);
    let before: Before = record::freeing(view, old);
    let new = call();
    if new.is_null() {
        if size != 0 {
            record::not_freed(view, old, before, large);
        }
        return new;
    }
    record::allocated(new, size as u64, caller);
    if new == block {
        record::resized_in_place(view, old, before);
    }
    new
}

fn large_before(view: &View, block: u64) -> Option<LargeBlock> {
    let small = view.find_slot(block).is_some_and(|slot| {
        let entry = slot.load(core::sync::atomic::Ordering::Relaxed);
        sunder_wire::layout::Entry(entry).is_live()
    });
    if small { None } else { view.large_at(block) }
}
