//! Which allocations get cache lines of their own: a part of the control file in [`crate::isolation`].
//! The tool writes the calls, and the library in the target asks the program's allocator for whole
//! lines where it recognises one. It has only types and constants, as `isolation`.

use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64};

/// The most calls. Their numbers begin at 1; 0 is none.
pub const CALLS: usize = 128;
/// The most files that have such calls.
pub const FILES: usize = 16;
/// The most bytes of a file's path, with the zero at its end.
pub const PATH: usize = 256;
/// Words in which the library remembers return addresses: a power of two.
pub const REMEMBERED: usize = 1024;
/// Parts of the threads that have a share of the blocks each, so that they do not all count in one
/// place: a power of two.
pub const SHARES: usize = 16;

/// A file that has calls.
#[derive(Debug)]
#[repr(C)]
pub struct File {
    /// What is added to addresses of the file to get those in memory, plus 1; 0 if the file is not
    /// known to be loaded.
    pub bias: AtomicU64,
    /// Its path, as the kernel tells it of a mapping, ended by a zero.
    pub path: [AtomicU8; PATH],
}

/// The rules by which the caller's stack frame is found.
pub mod rule {
    /// It can't be found.
    pub const NONE: u32 = 0;
    /// The frame ends [`super::Call::cfa`] bytes above the stack pointer.
    pub const STACK: u32 = 1;
    /// It ends so many bytes above the frame pointer.
    pub const FRAME: u32 = 2;
}

/// A call of an allocation function, or of a function that allocates for its callers.
#[derive(Debug, Default)]
#[repr(C)]
pub struct Call {
    /// The return address of the call, as an address in its file.
    pub offset: AtomicU64,
    /// The index of its file.
    pub file: AtomicU32,
    /// The number of the call that is made inside the called function; 0 for a call of an allocation
    /// function.
    pub parent: AtomicU32,
    /// 1 if blocks that are allocated through this call get lines of their own, whoever calls.
    pub listed: AtomicU32,
    /// How to find the stack frame of the caller: see [`rule`].
    pub rule: AtomicU32,
    /// See [`rule`].
    pub cfa: AtomicU32,
    /// Where the caller's frame pointer is saved, in bytes below the end of the frame; 0 if it is
    /// still in its register.
    pub saved: AtomicU32,
}

/// How many more blocks some of the threads may place.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub struct Share {
    /// The tool adds to it, and the library subtracts.
    pub left: AtomicI64,
}

/// The calls, and what the library remembers of return addresses.
#[derive(Debug)]
#[repr(C)]
pub struct Placing {
    /// The number of calls. Raised after the new ones are written; those before never change.
    pub count: AtomicU32,
    /// The `count` for which the library has looked for the files last. The tool sets it to 0 where
    /// a file was loaded since.
    pub looked: AtomicU32,
    /// The calls.
    pub calls: [Call; CALLS],
    /// Their files.
    pub files: [File; FILES],
    /// Return addresses with their calls; see `crates/inside/isolate/src/placing.rs`.
    pub remembered: [AtomicU64; REMEMBERED],
    /// See [`Share`].
    pub shares: [Share; SHARES],
}
