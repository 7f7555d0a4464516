//! Opening files in the program's process. Contexts: all.

use sunder_guest::system;

/// Opens a file for reading, or for writing too, with a high descriptor: a program that has closed
/// a low one expects to get that number next, and a thread that still waits in `read` on it must
/// not read our file.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
pub unsafe fn open(path: *const u8, write: bool) -> Option<i32> {
    const HIGH: usize = 48;
    let mode = if write { libc::O_RDWR } else { libc::O_RDONLY };
    // SAFETY: by this function's contract.
    let file = unsafe { system::open(libc::AT_FDCWD, path, mode) }?;
    // The limit may be lower than that. (A number over 64 would make the kernel wait for a larger
    // table.)
    let Some(high) = system::duplicate(file, HIGH) else {
        return Some(file);
    };
    system::close(file);
    Some(high)
}
