//! The remapping library: it moves the bytes of falsely shared pages to lines of their own
//! while the program runs, and sends threads that use these bytes to copies of the code that
//! find them there. Loaded by `sunder repair` and `sunder attach --repair`, which put it into a
//! running program, or preloaded by `repair` where the kernel does not allow that. The tool
//! decides what is moved and which code replaces which; this library carries it out, and
//! takes it back when anything is in doubt.
//!
//! - [`area`] moves pages and puts them back; both can happen at any moment, since
//!   every access to moved bytes then faults and waits.
//! - [`fault`] is the handler of those faults: it looks up where the thread continues, asks the
//!   tool, or moves the bytes back.
//! - [`lookup`] finds an instruction's copy, and a copy's original.
//! - [`interrupted`] restarts kernel calls that the tool's signal has ended early.
//! - [`hooks`] handles the kernel calls of the C library: a call that fails because its memory was
//!   moved is repeated ([`repeat`]).
//! - [`uses`] moves back what a kernel call will use; [`under_way`] knows which calls are made now.
//! - [`contexts`] notices when threads switch to stacks that the program made itself, which
//!   [`context_stacks`] remembers; [`stacks`] remembers signal stacks.
//! - [`parked`] keeps threads off their stacks while pages of these are moved.
//! - [`process`] says whether the library is in use in the calling process.
//! - [`cancel`] prevents that a thread is cancelled in a copy of code.
//! - [`signals`], [`calls`] and [`spawn`] are functions that the program calls instead
//!   of the C library's, so that its own handlers, its reads and writes and its children behave as
//!   natively.
//!
//! In a program that was already running, nothing is interposed; there [`before`] and
//! [`signal_calls`] handle the kernel calls behind those functions, and [`attached`] has what the
//! tool calls. The library that the tool puts there is built
//! without them (feature `preloaded`), and without what would waste memory in the program: the
//! standard library and unwinding tables.
//!
//! No code here allocates, panics, or changes `errno`; all of it may run in a
//! signal handler.

#![cfg_attr(not(any(test, feature = "preloaded")), no_std)]
#![cfg_attr(not(feature = "preloaded"), allow(dead_code, unused_imports))]
// A test binary does not call most of this.
#![cfg_attr(
    test,
    allow(
        dead_code,
        unused_imports,
        clippy::disallowed_methods,
        clippy::disallowed_macros
    )
)]

mod area;
mod ask;
mod attached;
mod before;
#[cfg(feature = "preloaded")]
mod calls;
mod cancel;
#[cfg(feature = "preloaded")]
mod clocks;
mod context_stacks;
mod contexts;
mod fault;
mod handlers;
mod hooks;
mod interrupted;
mod lookup;
mod memory_file;
mod pages;
mod parked;
mod peek;
#[cfg(not(feature = "preloaded"))]
mod plain;
mod process;
mod program;
#[cfg(feature = "preloaded")]
mod real;
mod registers;
mod repeat;
mod robust;
mod shared;
mod signal_calls;
#[cfg(feature = "preloaded")]
mod signals;
#[cfg(feature = "preloaded")]
mod spawn;
mod stacks;
#[cfg(feature = "preloaded")]
mod start;
#[cfg(feature = "preloaded")]
mod syscall;
mod under_way;
mod uses;
