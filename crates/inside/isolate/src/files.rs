//! Opening files in the program's process, among them the one that holds the program's memory.
//! Contexts: all.

use core::sync::atomic::{AtomicU8, Ordering};
use sunder_guest::system;

/// The path of the file for the program's memory, with its final zero byte; empty until it is set.
static MEMORY_PATH: [AtomicU8; 64] = [const { AtomicU8::new(0) }; 64];

/// Sets the path of the file for the program's memory. False if it is too long.
pub fn set_memory_path(path: &[u8]) -> bool {
    if path.len() >= MEMORY_PATH.len() {
        return false;
    }
    for (to, from) in MEMORY_PATH.iter().zip(path) {
        to.store(*from, Ordering::Relaxed);
    }
    true
}

/// Opens the file for the program's memory for reading and writing.
pub fn open_memory() -> Option<i32> {
    // SAFETY: the path is a C string, since its last byte is never set.
    unsafe { open(MEMORY_PATH.as_ptr().cast(), true) }
}

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
