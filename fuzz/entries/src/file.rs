//! Bytes as a file, for readers that take a path.

use std::io::Write;
use std::path::Path;
use tempfile::NamedTempFile;

/// A file with the contents `bytes`, in memory where the system has a folder there.
///
/// # Panics
/// If no file can be written: nothing would be tested.
pub fn holding(bytes: &[u8]) -> NamedTempFile {
    let memory = Path::new("/dev/shm");
    let mut file = NamedTempFile::new_in(memory)
        .or_else(|_| NamedTempFile::new())
        .expect("a folder for temporary files");
    file.write_all(bytes).expect("space for a temporary file");
    file
}
