//! The base of every library that runs inside a target. Used by all other crates of `inside`.
//!
//! - [`system`]: system calls, made without the C library
//! - [`next`]: finds the functions that ours interpose
//! - [`defined`]: finds a function where the dynamic linker can't be asked
//! - [`early`]: memory for allocations while these are looked up
//! - [`environment`]: the variables by which our libraries are started, and their removal
//! - [`exec`]: the exported functions that execute programs
//! - [`program`]: whether a program's file admits our libraries
//! - [`ends`]: the ends of threads
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
//! Nothing here knows the purpose of the library that uses it, allocates from the program's heap,
//! panics, or changes `errno` (except where the C library's function would). It uses no standard
//! library, because the code that is put into running programs has none.

#![cfg_attr(not(test), no_std)]
#![cfg_attr(test, allow(clippy::disallowed_methods, clippy::disallowed_macros))]

pub mod allocator;
pub mod bytes;
pub mod callers;
pub mod code;
pub mod confinement;
pub mod defined;
pub mod early;
pub mod ends;
pub mod environment;
pub mod exec;
pub mod local;
pub mod maps;
pub mod next;
pub mod program;
pub mod system;
