//! Changes code in mappings without the right to write. Contexts: all, while no other thread runs.

use sunder_guest::system;

/// Our own memory as a file. Writing to it does not change the rights of the pages, and copies the
/// pages first, as for a debugger.
pub struct Code {
    descriptor: i32,
}

impl Code {
    /// `None` if the kernel does not allow to open it.
    pub fn open() -> Option<Self> {
        let path = c"/proc/self/mem".as_ptr().cast();
        // SAFETY: the path is a C string.
        let descriptor = unsafe { system::open(libc::AT_FDCWD, path, libc::O_RDWR) }?;
        Some(Self { descriptor })
    }

    /// Writes `bytes` at `to`; returns whether that worked.
    ///
    /// # Safety
    /// No thread executes this code meanwhile, and the new code is valid for threads that execute
    /// it later.
    pub unsafe fn write(&self, to: usize, bytes: &[u8]) -> bool {
        let (from, len) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the bytes are a valid slice; the caller guarantees the place.
        unsafe { system::write_at(self.descriptor, from, len, to as u64) == len as isize }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        system::close(self.descriptor);
    }
}

/// Whether the memory at `at` holds `bytes`.
///
/// # Safety
/// So many bytes are readable there.
pub unsafe fn are(at: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(i, &byte)| {
        // SAFETY: the caller upholds this function's contract.
        unsafe { ((at + i) as *const u8).read() == byte }
    })
}
