//! The C library's area for restartable sequences (`rseq`), into which the kernel writes a thread's
//! CPU number. It belongs to the thread, so a worker takes the registration back.
//!
//! Contexts: [`set`] pre-init; [`unregister`] in a worker before it computes.

use core::sync::atomic::{AtomicUsize, Ordering};
use sunder_guest::system;

/// The offset of the C library's area for restartable sequences from the thread pointer; 0 for
/// none.
static OFFSET: AtomicUsize = AtomicUsize::new(0);

/// The kernel's size for that area.
static BYTES: AtomicUsize = AtomicUsize::new(0);

/// Keeps where that area is. Called at the start, because asking the C library may change `errno`.
pub fn set(offset: isize) {
    const AT_RSEQ_FEATURE_SIZE: u64 = 27;
    // SAFETY: the address of this thread's error number, and calls that pass numbers.
    unsafe {
        let before = *libc::__errno_location();
        let size = libc::getauxval(AT_RSEQ_FEATURE_SIZE) as usize;
        *libc::__errno_location() = before;
        BYTES.store(size, Ordering::Relaxed);
    }
    OFFSET.store(offset as usize, Ordering::Relaxed);
}

/// Takes the registration back: the kernel must not write this worker's CPU number there.
///
/// # Safety
/// The calling process is a worker, which executes nothing that needs the registration.
pub unsafe fn unregister() {
    const UNREGISTER: usize = 1;
    const SIGNATURE: usize = 0x5305_3053;
    const OLD_SIZE: usize = 32;
    let offset = OFFSET.load(Ordering::Relaxed);
    if offset == 0 {
        return;
    }
    let area = system::thread_pointer().wrapping_add(offset);
    let size = BYTES.load(Ordering::Relaxed);
    // SAFETY: the kernel undoes the registration if there is one of this address and size.
    unsafe {
        for bytes in [OLD_SIZE, size, size.next_multiple_of(32)] {
            let arguments = [area, bytes, UNREGISTER, SIGNATURE, 0, 0];
            if system::call(libc::SYS_rseq, arguments) == 0 {
                return;
            }
        }
    }
}
