//! The allocation functions. `operator new` and `delete` come here through the
//! C++ library. A free is told before it happens and an allocation after it, so
//! that an address that is used again is never allocated before it was freed.

use crate::{real, tell};
use core::ffi::{c_int, c_void};
use core::ptr::null_mut;
use sunder_next::early;
use sunder_trace::announce::kind;
use sunder_trace::slot::alignment_code;

/// The alignment of `valloc` and `pvalloc`.
const PAGE: usize = 4096;

/// A request for `size` bytes, at multiples of `alignment`, gave `block`.
#[inline]
fn allocated(block: *mut c_void, size: usize, alignment: usize) -> *mut c_void {
    if !block.is_null() {
        let kind = kind::allocate(alignment_code(alignment));
        tell(kind, block.addr() as u64, size as u64);
    }
    block
}

#[inline]
fn freeing(block: *mut c_void) {
    if !block.is_null() {
        tell(kind::FREE, block.addr() as u64, 0);
    }
}

macro_rules! allocates {
    ($($name:ident($($argument:ident: $type:ty),*), $size:expr, $alignment:expr, $without:expr;)*) => {$(
        /// Interposed; see its manual.
        ///
        /// # Safety
        /// As the manual demands.
        #[unsafe(no_mangle)]
        pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> *mut c_void {
            match real::$name() {
                // SAFETY: handed on.
                Some(real) => allocated(unsafe { real($($argument),*) }, $size, $alignment),
                None => $without,
            }
        }
    )*};
}

allocates! {
    malloc(size: usize), size, 1, early::allocate(size, 1).cast();
    calloc(count: usize, size: usize),
        count.wrapping_mul(size), 1, early::allocate(count.saturating_mul(size), 1).cast();
    aligned_alloc(alignment: usize, size: usize), size, alignment, null_mut();
    memalign(alignment: usize, size: usize), size, alignment, null_mut();
    valloc(size: usize), size, PAGE, null_mut();
    pvalloc(size: usize), size, PAGE, null_mut();
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

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn realloc(block: *mut c_void, size: usize) -> *mut c_void {
    let Some(real) = real::realloc() else {
        return null_mut();
    };
    if early::owns(block) {
        // SAFETY: the block is the arena's.
        return unsafe { leave_arena(block, size) };
    }
    // Told before, because afterwards the block may be another thread's. If it
    // fails, the block lives on: it is allocated again.
    freeing(block);
    // SAFETY: handed on.
    let new = unsafe { real(block, size) };
    allocated(new, size, 1)
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn reallocarray(
    block: *mut c_void,
    count: usize,
    size: usize,
) -> *mut c_void {
    let Some(real) = real::reallocarray() else {
        return null_mut();
    };
    if early::owns(block) {
        // SAFETY: the block is the arena's.
        return unsafe { leave_arena(block, count.saturating_mul(size)) };
    }
    freeing(block);
    // SAFETY: handed on.
    let new = unsafe { real(block, count, size) };
    allocated(new, count.wrapping_mul(size), 1)
}

/// Interposed; see its manual.
///
/// # Safety
/// As the manual demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn posix_memalign(
    block: *mut *mut c_void,
    alignment: usize,
    size: usize,
) -> c_int {
    let Some(real) = real::posix_memalign() else {
        return libc::ENOMEM;
    };
    // SAFETY: handed on.
    let result = unsafe { real(block, alignment, size) };
    if result == 0 {
        // SAFETY: it succeeded, so the place is valid.
        allocated(unsafe { *block }, size, alignment);
    }
    result
}

/// A block from the arena moves to the real heap.
///
/// # Safety
/// `block` is the arena's.
unsafe fn leave_arena(block: *mut c_void, size: usize) -> *mut c_void {
    // SAFETY: the block is the arena's, and the new one has `size` bytes.
    unsafe {
        let new = malloc(size);
        if !new.is_null() {
            early::move_to(new.cast(), size, block.cast());
        }
        new
    }
}
