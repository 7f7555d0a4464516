//! For tests of tools and of the framework, in the test's own process: an empty control
//! file, and memory that "others" see elsewhere. Contexts: none of the program's.

use crate::memory::Memory;
use core::ffi::c_void;
use sunder_transaction::PAGE;
use sunder_wire::isolation::{Control, ROOM};

/// A control file in which nothing is written.
pub fn control() -> Box<Control> {
    let layout = std::alloc::Layout::new::<Control>();
    // SAFETY: zeroes are valid for all of its fields, which are numbers, and the box gives
    // back what the same allocator gave for this layout.
    unsafe { Box::from_raw(std::alloc::alloc_zeroed(layout).cast()) }
}

/// A worker's memory, with a room that stays for the test's short life.
pub fn memory() -> Memory {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: new memory.
    let at = unsafe { libc::mmap(core::ptr::null_mut(), ROOM, 0, flags, -1, 0) };
    assert_ne!(at, libc::MAP_FAILED);
    let memory = Memory::new();
    memory.set_room(at as usize);
    memory
}

/// Some pages of a memory file, mapped twice: where "the thread" computes, and where
/// everybody else sees them.
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
        // SAFETY: a new file and new mappings of it, which the value keeps.
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

    /// Where the thread has its pages.
    pub const fn range(&self) -> (usize, usize) {
        (self.thread, self.thread + self.bytes)
    }

    /// The thread's address of a page.
    pub const fn page(&self, page: usize) -> usize {
        self.thread + page * PAGE
    }

    /// The thread writes a byte. False if it met a page that may not be written: by way of the
    /// kernel, which says so instead of raising a signal.
    pub fn write(&self, at: usize, byte: u8) -> bool {
        assert!(at < self.bytes);
        let place = (self.thread + at) as *mut c_void;
        // SAFETY: the byte lies in our mapping, and nothing borrows from it.
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

    /// What the thread reads.
    pub fn read(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: as above.
        unsafe { ((self.thread + at) as *const u8).read_volatile() }
    }

    /// Others write a byte.
    pub fn write_as_others(&self, at: usize, byte: u8) {
        assert!(at < self.bytes);
        // SAFETY: as above.
        unsafe { ((self.others + at) as *mut u8).write_volatile(byte) };
    }

    /// What others read.
    pub fn read_as_others(&self, at: usize) -> u8 {
        assert!(at < self.bytes);
        // SAFETY: as above.
        unsafe { ((self.others + at) as *const u8).read_volatile() }
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        // SAFETY: nothing borrows from the mappings. Private copies in the range go with it;
        // what keeps the shared pages elsewhere stays, for the test's short life.
        unsafe {
            libc::munmap(self.thread as *mut c_void, self.bytes);
            libc::munmap(self.others as *mut c_void, self.bytes);
            for end in self.pipe {
                libc::close(end);
            }
        }
    }
}
