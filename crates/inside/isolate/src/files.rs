//! Opening files in the program's process. Contexts: all.

use sunder_guest::system;

/// Opens a file for reading, or for writing too, with a high number: whoever has closed a
/// low one counts on getting that next, and who still waits to read from it must not read our
/// file.
///
/// # Safety
/// `path` points to a string that ends with a zero byte.
pub unsafe fn open(path: *const u8, write: bool) -> Option<i32> {
    const HIGH: usize = 48;
    let mode = if write { libc::O_RDWR } else { libc::O_RDONLY };
    // SAFETY: by this function's contract.
    let file = unsafe { system::open(libc::AT_FDCWD, path, mode) }?;
    // There need not be so many. (More than 64 would make the kernel wait for a larger table.)
    let Some(high) = system::duplicate(file, HIGH) else {
        return Some(file);
    };
    system::close(file);
    Some(high)
}
