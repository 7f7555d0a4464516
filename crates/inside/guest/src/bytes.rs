//! Copying memory without the C library, some of whose code uses wider registers than hooks
//! may. Contexts: all.

/// Copies so many bytes.
///
/// # Safety
/// As `core::ptr::copy_nonoverlapping` demands.
pub unsafe fn copy(from: usize, to: usize, bytes: usize) {
    // SAFETY: by this function's contract.
    unsafe {
        core::arch::asm!(
            "rep movsb",
            inout("rcx") bytes => _,
            inout("rsi") from => _,
            inout("rdi") to => _,
            options(nostack, preserves_flags),
        );
    }
}
