//! Changing code that is mapped without the right to write. Contexts: all, while no other
//! thread runs.

use sunder_guest::system;

/// Our own memory as a file: writing there leaves the rights of the pages alone,
/// and the pages are copied first, as if a debugger wrote.
pub struct Code {
    descriptor: i32,
}

impl Code {
    /// `None` if the kernel does not allow it.
    pub fn open() -> Option<Self> {
        let path = c"/proc/self/mem".as_ptr().cast();
        // SAFETY: the path is a C string.
        let descriptor = unsafe { system::open(libc::AT_FDCWD, path, libc::O_RDWR) }?;
        Some(Self { descriptor })
    }

    /// Writes `bytes` at `to`; whether that worked.
    ///
    /// # Safety
    /// Nothing runs there meanwhile, and what runs there later can bear it.
    pub unsafe fn write(&self, to: usize, bytes: &[u8]) -> bool {
        let (from, len) = (bytes.as_ptr() as usize, bytes.len());
        // SAFETY: the bytes are there; the caller vouches for the place.
        unsafe { system::write_at(self.descriptor, from, len, to as u64) == len as isize }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        system::close(self.descriptor);
    }
}

/// Whether `bytes` are at `at`.
///
/// # Safety
/// So many bytes may be read there.
pub unsafe fn are(at: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(i, &byte)| {
        // SAFETY: the caller upholds this function's contract.
        unsafe { ((at + i) as *const u8).read() == byte }
    })
}
