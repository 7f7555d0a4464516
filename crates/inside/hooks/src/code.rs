//! Changing code that is mapped without the right to write.

use crate::kernel::call;

/// Our own memory as a file: writing there leaves the rights of the pages alone,
/// and the pages are copied first, as if a debugger wrote.
pub struct Code {
    descriptor: usize,
}

impl Code {
    /// `None` if the kernel does not allow it.
    pub fn open() -> Option<Self> {
        let path = c"/proc/self/mem".as_ptr() as usize;
        let flags = (libc::O_RDWR | libc::O_CLOEXEC) as usize;
        let here = libc::AT_FDCWD as usize;
        // SAFETY: the path is a C string.
        let descriptor = unsafe { call(libc::SYS_openat, [here, path, flags, 0, 0, 0]) };
        let descriptor = usize::try_from(descriptor).ok()?;
        Some(Self { descriptor })
    }

    /// Writes `bytes` at `to`; whether that worked.
    ///
    /// # Safety
    /// Nothing runs there meanwhile, and what runs there later can bear it.
    pub unsafe fn write(&self, to: usize, bytes: &[u8]) -> bool {
        let from = bytes.as_ptr() as usize;
        let arguments = [self.descriptor, from, bytes.len(), to, 0, 0];
        // SAFETY: the bytes are there; the caller vouches for the place.
        unsafe { call(libc::SYS_pwrite64, arguments) == bytes.len() as isize }
    }
}

impl Drop for Code {
    fn drop(&mut self) {
        // SAFETY: our own descriptor.
        unsafe { call(libc::SYS_close, [self.descriptor, 0, 0, 0, 0, 0]) };
    }
}

/// Whether `bytes` are at `at`.
///
/// # Safety
/// So many bytes may be read there.
pub unsafe fn are(at: usize, bytes: &[u8]) -> bool {
    bytes.iter().enumerate().all(|(i, &byte)| {
        // SAFETY: by the caller.
        unsafe { ((at + i) as *const u8).read() == byte }
    })
}
