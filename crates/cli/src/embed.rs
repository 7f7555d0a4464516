//! The runtime library that this program carries within itself. It is handed to
//! the target as a memory file, so that nothing is written to disk and a
//! `noexec` temporary folder does not matter.

use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::path::PathBuf;

static LIBRARY: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/libsunder_runtime.so"));

/// The library as a file of this process. It lasts as long as this value; the
/// target must have started by then.
pub struct RuntimeLibrary {
    file: File,
}

impl RuntimeLibrary {
    /// Makes the memory file.
    ///
    /// # Errors
    /// If the kernel has no memory files or no memory.
    pub fn new() -> io::Result<Self> {
        // SAFETY: the name is a valid C string; the call takes no other pointer.
        let fd = unsafe { libc::memfd_create(c"sunder-runtime".as_ptr(), libc::MFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just opened and belongs to nobody else.
        let mut file = unsafe { File::from_raw_fd(fd) };
        file.write_all(LIBRARY)?;
        Ok(Self { file })
    }

    /// The path by which another process of this user can open it.
    pub fn path(&self) -> PathBuf {
        format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()).into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_library_is_an_elf_file_that_can_be_opened_by_its_path() {
        let library = RuntimeLibrary::new().expect("memory files exist since Linux 3.17");
        let bytes = std::fs::read(library.path()).expect("our own descriptor");
        assert!(bytes.starts_with(b"\x7fELF"));
        assert_eq!(bytes, LIBRARY);
    }
}
