//! The plugin that records a program under Debian's `qemu-user` (design 4.6): every access,
//! allocations, threads and the stamps that order them, through `sunder-trace`. Loaded by
//! `qemu-x86_64 -plugin`, which `sunder trace --via emulated` starts.
//!
//! It runs in the emulator's process, beside the emulated program: it may use the heap and the
//! standard library, which are the emulator's. It must not panic across the boundary. Of the
//! program's memory it may only read the reports. Where it cannot record, the program continues
//! unrecorded.
//!
//! - `api`: the emulator's functions
//! - `decode`: what an instruction does to memory; pure
//! - `translate`: which callbacks an instruction gets; `accesses`: those callbacks
//! - `thread`: the data of each emulated processor; `calls`: its call stack
//! - `guest`: the reports of the library within the program (`crates/inside/announce`)
//! - `modules`: the loaded files and their addresses
//! - `start`: begin and end, forks, system calls

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "memory and standard library here are not the program's"
)]

mod accesses;
mod api;
mod calls;
mod decode;
mod guest;
mod modules;
mod start;
mod thread;
mod translate;

use sunder_recorder::Recorder;

/// The process's recording.
static RECORDER: Recorder = Recorder::new();
