//! Fixtures for tests of the tools and the framework, in the test's own process: an empty control
//! file, and memory that is mapped a second time for "the others".
//!
//! Contexts: tests only.

use crate::memory::Memory;
use core::ffi::c_void;
use sunder_transaction::PAGE;
use sunder_wire::isolation::{Control, ROOM};

/// A control file of zeroes.
pub fn control() -> Box<Control> {
    let layout = std::alloc::Layout::new::<Control>();
    // SAFETY: zeroes are valid for all of its fields, which are numbers, and the box frees the
    // memory with the same allocator and layout.
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
}

/// A worker's memory, with a room that is never unmapped.
pub fn memory() -> Memory {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), ROOM, 0, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let memory = Memory::new();
    memory.set_room(at as usize);
    memory
}

/// Some pages of a memory file, mapped twice: at one address "the thread" computes, at the other
/// one all other threads see them.
pub struct Program {
    thread: usize,
    others: usize,
    bytes: usize,
    pipe: [i32; 2],
}

impl Program {
    /// So many pages of zeroes.
    pub fn new(pages: usize) -> Self {
        let bytes = pages * PAGE;
        let mut pipe = [0; 2];
        // SAFETY: a new file and new mappings of it, which the value owns.
        unsafe {
            let file = libc::memfd_create(c"program".as_ptr(), libc::MFD_CLOEXEC);
            assert_eq!(libc::ftruncate(file, bytes as i64), 0);
            let both = libc::PROT_READ | libc::PROT_WRITE;
            let map = || {
                let none = core::ptr::null_mut();
                let at = libc::mmap(none, bytes, both, libc::MAP_SHARED, file, 0);
                assert_ne!(at, libc::MAP_FAILED);
                at as usize
            };
            let (thread, others) = (map(), map());
            libc::close(file);
            assert_eq!(libc::pipe2(pipe.as_mut_ptr(), libc::O_CLOEXEC), 0);
            Self {
                thread,
                others,
                bytes,
                pipe,
            }
        }
    }

    /// The thread's address range.
    pub const fn range(&self) -> (usize, usize) {
        (self.thread, self.thread + self.bytes)
    }

    /// The thread's address of a page.
    pub const fn page(&self, page: usize) -> usize {
        self.thread + page * PAGE
    }

    /// The thread writes a byte. False if the page is write-protected. The kernel writes, because
    /// it returns an error instead of raising a signal.
    pub fn write(&self, at: usize, byte: u8) -> bool {
        assert!(at < self.bytes);
        let place = (self.thread + at) as *mut c_void;
        // SAFETY: the byte lies in our mapping, and no reference to it exists.
        unsafe {
            assert_eq!(libc::write(self.pipe[1], (&raw const byte).cast(), 1), 1);
            let done = libc::read(self.pipe[0], place, 1) == 1;
            if !done {
                let mut back = 0u8;
                assert_eq!(libc::read(self.pipe[0], (&raw mut back).cast(), 1), 1);
            }
            done
        }
    }

    /// Reads a byte as the thread.
    pub fn read(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: the byte lies in our mapping, and no reference to it exists.
        unsafe { ((self.thread + at) as *const u8).read_volatile() }
    }

    /// Writes a byte as the others.
    pub fn write_as_others(&self, at: usize, byte: u8) {
        assert!(at < self.bytes);
        // SAFETY: the byte lies in our mapping, and no reference to it exists.
        unsafe { ((self.others + at) as *mut u8).write_volatile(byte) };
    }

    /// Reads a byte as the others.
    pub fn read_as_others(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: the byte lies in our mapping, and no reference to it exists.
        unsafe { ((self.others + at) as *const u8).read_volatile() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: no references into the mappings exist. Private copies in the range are unmapped
        // with it; the second mappings of shared pages stay until the test process ends.
        unsafe {
            libc::munmap(self.thread as *mut c_void, self.bytes);
            libc::munmap(self.others as *mut c_void, self.bytes);
            for end in self.pipe {
                libc::close(end);
            }
        }
    }
}
