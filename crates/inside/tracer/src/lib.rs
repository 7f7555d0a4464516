//! The runtime of programs that were compiled with `-fsanitize=thread` and
//! linked with this in place of libtsan: the compilers' hooks, and the C
//! library's functions for threads, synchronisation and memory, all recorded
//! through `sunder-trace` when `SUNDER_TRACE` names a file.
//!
//! Called by the program's own code, which `sunder cc`, `sunder c++` and `sunder cargo` link with
//! it. It must not panic, allocate from the heap that it watches, or change `errno`; where it
//! cannot record, the program continues unrecorded. A program that is not recorded pays one load
//! and one branch for each access.
//!
//! - `hooks`: plain accesses, in assembly; `local`: what they keep for a thread
//! - `atomics`: the compilers' atomic operations
//! - `heap`, `threads`, `synchronise`: interposed functions
//! - `start`: begin and end of the recording; `exec`: its end where another program follows;
//!   `modules`: loaded files; `real`: the functions that ours interpose

mod atomics;
mod exec;
mod heap;
mod hooks;
mod local;
mod modules;
mod real;
mod start;
mod synchronise;
mod threads;
