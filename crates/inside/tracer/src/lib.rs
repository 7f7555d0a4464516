//! The runtime of programs that were compiled with `-fsanitize=thread` and
//! linked with this in place of libtsan: the compilers' hooks, and the C
//! library's functions for threads, synchronisation and memory, all recorded
//! through `sunder-trace` when `SUNDER_TRACE` names a file.
//!
//! It runs inside the program: it never panics, never allocates from the heap
//! that it watches, leaves `errno` alone, and where it cannot record, the program
//! goes on. A program that is not recorded pays one load and one branch for each
//! access.
//!
//! - `hooks`: plain accesses, in assembly; `local`: what they keep for a thread
//! - `atomics`: the compilers' atomic operations
//! - `heap`, `threads`, `synchronise`: interposed functions
//! - `start`: begin and end of the recording; `exec`: its end where another program
//!   follows; `modules`: loaded files; `real`: the functions behind ours

mod atomics;
mod exec;
mod heap;
mod hooks;
mod local;
mod modules;
mod new;
mod real;
mod start;
mod synchronise;
mod threads;
