//! What every library of ours that runs inside a target stands on. Used by all other
//! crates of `inside`, each of which adds only what is its own.
//!
//! - [`system`]: system calls, made around the C library
//! - [`next`]: the functions behind those that we put in front of the program's
//! - [`early`]: memory while these are looked up
//! - [`allocator`]: the exported `malloc` family
//! - [`maps`]: the list of mappings that the kernel writes
//! - [`bytes`]: copying without the C library
//! - [`local`]: thread-local memory that is reached without a call
//!
//! Every module of this folder names the contexts in which its code may run:
//! - *pre-init*: before the library's constructor, possibly inside the dynamic linker;
//! - *normal*: any thread, any time, also while other threads fork or exit;
//! - *signal*: inside a signal handler, or in a thread that was stopped anywhere:
//!   async-signal-safe calls only;
//! - *post-fork*: in a forked child, which has none of its parent's other threads.
//!
//! Nothing here knows why a library is in the target, allocates from the program's heap,
//! panics, or changes `errno` (but where the C library's own function would). It does
//! without the standard library, because the code that is put into running programs has none.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod allocator;
pub mod bytes;
pub mod early;
pub mod local;
pub mod maps;
pub mod next;
pub mod system;
