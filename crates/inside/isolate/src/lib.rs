//! The isolating library: preloaded by `sunder protect`, it gives threads page tables
//! of their own while they compute, so that falsely shared pages cost nothing.
//!
//! - [`start`] finds the control file when the program starts; until the tool sends a thread,
//!   nothing else happens. [`carry`] has what a program needs that this one executes (`exec`).
//! - [`enter`] is where the tool sends a thread that it has stopped in the middle of its
//!   work: the thread makes a *worker*, a process with its registers, stack and thread
//!   pointer but a page table of its own, and parks. [`resume`] continues with saved registers,
//!   [`tick`] is the parked thread's signal to its worker, and [`collect`] waits for its end.
//! - [`worker`] prepares that process. It does nothing but compute: a system call, a
//!   fault, code that it may not execute ([`confine`]), all end the *episode*: what it changed is
//!   committed, and the parked thread goes on in its place, natively, with the same
//!   instruction. [`sequences`] takes back a registration that is the thread's.
//! - [`tool`] is the interface between this framework and the tools on it: [`named`] (pages that
//!   the control file names) and [`tracking`] (pages that several threads write); [`chosen`] is the
//!   one in use. [`episode`] calls the tool, and [`memory`] is what a worker alone has. [`log`] tells
//!   tools outside what commits changed.
//!   [`from_worker`] makes the system calls that its filter allows.
//! - [`convert`] makes the program's memory sharable, and private again; [`withdraw`] has it made
//!   private before a fork, and [`hold`] keeps threads from being isolated meanwhile. [`arguments`]
//!   keeps a private copy of the arguments for the kernel.
//! - [`living`] lists the memory that is to be isolated and may go away, [`blocks`] the heap objects
//!   of it; [`inputs`] are files that are mapped privately and only read.
//! - [`space`] handles every change of the address space, by hooks in the C library; [`code`] then
//!   forgets what was known of code there.
//! - [`interface`] has the functions of `include/sunder.h`.
//! - [`calls`] interposes the functions that make processes.
//!
//! Contexts: `enter` and `convert` run on threads that were stopped anywhere, `worker`
//! in a signal handler without the C library. No code here panics, allocates or
//! touches `errno`. See `docs/design/isolate.md`.

#![cfg_attr(
    test,
    allow(dead_code, clippy::disallowed_methods, clippy::disallowed_macros)
)]

mod arguments;
#[cfg(not(test))]
mod blocks;
mod bursts;
#[cfg(not(test))]
mod calls;
mod carry;
mod chosen;
mod code;
mod collect;
mod confine;
mod control;
mod convert;
mod enter;
mod episode;
mod files;
mod from_worker;
mod hold;
mod inputs;
#[cfg(not(test))]
mod interface;
mod living;
mod log;
mod maps;
mod memory;
mod named;
mod placing;
mod real;
mod resume;
mod sequences;
mod space;
mod start;
#[cfg(test)]
mod testing;
mod tick;
mod tool;
mod tracking;
mod upkeep;
mod waits;
mod withdraw;
mod worker;
