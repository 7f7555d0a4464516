//! The allocation functions of this library: they record blocks that named call sites allocate, and
//! forget recorded blocks when they are freed ([`crate::living`]). Without call sites and blocks they
//! call the real functions at once.
//!
//! Contexts: pre-init, normal.

use crate::{living, real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::Relaxed;
use core::sync::atomic::{AtomicBool, AtomicUsize};
use sunder_wire::isolation::{Control, SITES};

/// Return addresses of the named call sites; 0 for none.
static RETURNS: [AtomicUsize; SITES] = [const { AtomicUsize::new(0) }; SITES];
static ANY: AtomicBool = AtomicBool::new(false);

/// Finds the named call sites in the loaded files. Called once, at the start.
pub fn find_sites(control: &Control) {
    // SAFETY: the callback only reads; its data pointer is the control file, which stays mapped.
    unsafe { libc::dl_iterate_phdr(Some(each_module), (&raw const *control).cast_mut().cast()) };
}

unsafe extern "C" fn each_module(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    data: *mut c_void,
) -> c_int {
    // SAFETY: the linker passes a valid description; `find_sites` passes the control file.
    let (control, base, name) = unsafe {
        let name = (*info).dlpi_name;
        let name = if name.is_null() {
            c""
        } else {
            core::ffi::CStr::from_ptr(name)
        };
        (
            &*data.cast::<Control>(),
            (*info).dlpi_addr as usize,
            name.to_bytes(),
        )
    };
    for (known, site) in RETURNS.iter().zip(&control.sites) {
        let offset = site.offset.load(Relaxed) as usize;
        let is_program = site.is_program.load(Relaxed) != 0;
        let meant = if is_program {
            // The dynamic linker gives the program itself an empty name.
            name.is_empty()
        } else {
            !name.is_empty()
                && site
                    .file
                    .iter()
                    .zip(name.iter().chain([&0]))
                    .all(|(a, b)| a.load(Relaxed) == *b)
        };
        if offset != 0 && meant && known.load(Relaxed) == 0 {
            known.store(base.wrapping_add(offset), Relaxed);
            ANY.store(true, Relaxed);
        }
    }
    0
}

/// Records a new block if its allocation returns to one of the named call sites.
fn record_if_named(block: *mut c_void, bytes: usize, to: usize) {
    if block.is_null() || !ANY.load(Relaxed) || to == 0 {
        return;
    }
    if !RETURNS.iter().any(|r| r.load(Relaxed) == to) {
        return;
    }
    living::record(block as usize, bytes, false);
}

/// The body of an allocation function: `$inner` gets the arguments and, as the last one, the call's
/// return address.
macro_rules! with_return {
    ($register:literal, $inner:ident) => {
        core::arch::naked_asm!(
            concat!("mov ", $register, ", [rsp]"),
            "jmp {inner}",
            inner = sym $inner,
        )
    };
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn malloc(bytes: usize) -> *mut c_void {
    with_return!("rsi", malloc_from)
}

unsafe extern "C-unwind" fn malloc_from(bytes: usize, to: usize) -> *mut c_void {
    let Some(real) = real::malloc() else {
        return core::ptr::null_mut();
    };
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let block = unsafe { real(bytes) };
    record_if_named(block, bytes, to);
    block
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn calloc(count: usize, bytes: usize) -> *mut c_void {
    with_return!("rdx", calloc_from)
}

unsafe extern "C-unwind" fn calloc_from(count: usize, bytes: usize, to: usize) -> *mut c_void {
    let Some(real) = real::calloc() else {
        return core::ptr::null_mut();
    };
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let block = unsafe { real(count, bytes) };
    record_if_named(block, count.saturating_mul(bytes), to);
    block
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn aligned_alloc(alignment: usize, bytes: usize) -> *mut c_void {
    with_return!("rdx", aligned_alloc_from)
}

unsafe extern "C-unwind" fn aligned_alloc_from(
    alignment: usize,
    bytes: usize,
    to: usize,
) -> *mut c_void {
    let Some(real) = real::aligned_alloc() else {
        return core::ptr::null_mut();
    };
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    let block = unsafe { real(alignment, bytes) };
    record_if_named(block, bytes, to);
    block
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn posix_memalign(
    place: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
) -> c_int {
    with_return!("rcx", posix_memalign_from)
}

unsafe extern "C-unwind" fn posix_memalign_from(
    place: *mut *mut c_void,
    alignment: usize,
    bytes: usize,
    to: usize,
) -> c_int {
    let Some(real) = real::posix_memalign() else {
        return libc::ENOMEM;
    };
    // SAFETY: the caller upholds the C library's contract; after success the place holds a block.
    unsafe {
        let result = real(place, alignment, bytes);
        if result == 0 {
            record_if_named(*place, bytes, to);
        }
        result
    }
}

/// Interposed; see the C library's manual.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn free(block: *mut c_void) {
    living::forget(block as usize);
    if let Some(real) = real::free() {
        // SAFETY: the caller's arguments, passed on unchanged under the same contract.
        unsafe { real(block) };
    }
}

/// Interposed; see the C library's manual; a recorded block may move.
///
/// # Safety
/// As the C library demands.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn realloc(block: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(real) = real::realloc() else {
        // SAFETY: the C library returns the valid address of this thread's error number.
        unsafe { *libc::__errno_location() = libc::ENOMEM };
        return core::ptr::null_mut();
    };
    living::forget(block as usize);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { real(block, bytes) }
}
