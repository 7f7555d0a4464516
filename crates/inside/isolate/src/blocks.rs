//! The living heap blocks that are to be isolated: those that named call sites have allocated,
//! recorded here, and those that the tool has recorded because it saw them shared. The allocation
//! functions of this library call it first; without call sites and blocks they call the real
//! functions at once.
//!
//! Contexts: pre-init, normal.

use crate::hold::Hold;
use crate::{control, real};
use core::ffi::{c_int, c_void};
use core::sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use core::sync::atomic::{AtomicBool, AtomicUsize};
use sunder_access::PAGE_SIZE as PAGE;
use sunder_wire::isolation::{Control, PAGES, SITES};

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
    record(block, bytes, 0);
}

/// Records bytes that the program itself asks to have isolated; returns whether there was room.
pub fn request(start: *mut c_void, bytes: usize) -> bool {
    record(start, bytes, 1)
}

fn record(block: *mut c_void, bytes: usize, asked: u32) -> bool {
    let Some(control) = control::get() else {
        return false;
    };
    for kept in &control.blocks {
        // The entry is claimed first and filled afterwards: the tool reads the address last.
        if kept.address.compare_exchange(0, 1, SeqCst, Relaxed).is_ok() {
            kept.bytes.store(bytes as u64, SeqCst);
            kept.asked.store(asked, SeqCst);
            kept.address.store(block as u64, SeqCst);
            control.block_changes.fetch_add(1, SeqCst);
            return true;
        }
    }
    false
}

/// Forgets a block that is about to be freed: its pages are shared from then on. Returns whether
/// the block was recorded.
pub fn forget(block: *mut c_void) -> bool {
    if block.is_null() {
        return false;
    }
    let Some(control) = control::get() else {
        return false;
    };
    // The count is raised after a block was recorded and never returns to 0.
    if control.block_changes.load(Acquire) == 0 {
        return false;
    }
    let address = block as u64;
    let mut known = false;
    for kept in control
        .blocks
        .iter()
        .filter(|b| b.address.load(Relaxed) == address)
    {
        // With this, no thread has a private page of the block any more, and none gets one.
        let _hold = Hold::new();
        let end = address + kept.bytes.load(Relaxed);
        // The address is cleared first. The tool reads it after it has recorded pages: it either
        // sees that the block is going away, or the loop below gives its pages up.
        if kept
            .address
            .compare_exchange(address, 1, SeqCst, SeqCst)
            .is_err()
        {
            continue;
        }
        for page in control.pages.iter().take(PAGES) {
            let at = page.address.load(SeqCst);
            if at < end && address < at + PAGE as u64 {
                page.given_up.store(2, SeqCst);
            }
        }
        known = true;
        kept.asked.store(0, SeqCst);
        kept.address.store(0, SeqCst);
        control.block_changes.fetch_add(1, SeqCst);
    }
    known
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
    forget(block);
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
    forget(block);
    // SAFETY: the caller's arguments, passed on unchanged under the same contract.
    unsafe { real(block, bytes) }
}
