//! System calls without the C library, whose own code may be the patient.

pub use sunder_kernel::call;

/// Sets the rights of the whole pages from `start` to `end`.
///
/// # Safety
/// Whoever uses them can bear the new rights.
pub unsafe fn protect(start: usize, end: usize, rights: i32) -> bool {
    // SAFETY: by the caller.
    unsafe {
        call(
            libc::SYS_mprotect,
            [start, end - start, rights as usize, 0, 0, 0],
        ) == 0
    }
}
