//! The remapping library: it moves the bytes of falsely shared pages to lines of their own
//! while the program runs, and sends threads that use these bytes to copies of the code that
//! find them there. Loaded by `sunder repair` and `sunder attach --repair`, which put it into a
//! running program, or preloaded by `repair` where the kernel does not allow that. The tool
//! decides what is moved and which code replaces which; this library carries it out, and
//! takes it back when anything is in doubt.
//!
//! - [`area`] moves pages and puts them back; both can happen at any moment, since
//!   every access to moved bytes then faults and waits.
//! - [`fault`] is the handler of those faults: it looks the way on up, asks for it,
//!   or gives up.
//! - [`interrupted`] begins kernel calls anew that the tool's signal has ended early.
//! - [`hooks`] sees the kernel calls of the C library: one that fails because its
//!   memory was moved is made again.
//! - [`contexts`] sees threads go to stacks that the program made for itself.
//! - [`cancel`] sees to it that no thread is cancelled in a copy of code.
//! - [`signals`], [`calls`], [`takes`] and [`spawn`] are functions that the program calls
//!   instead of the C library's, so that its own handlers, its reads and writes and
//!   its children are what they are without us.
//!
//! In a program that was running already nobody calls these functions; there
//! [`attached`] and [`before`] see the kernel calls behind them. They are left out of what the tool
//! puts there (feature `preloaded`), and with them all that would take memory in the
//! program to no end: the standard library and tables for unwinding.
//!
//! No code here allocates, panics, or changes `errno`; all of it may run in a
//! signal handler.

#![cfg_attr(not(any(test, feature = "preloaded")), no_std)]
#![cfg_attr(not(feature = "preloaded"), allow(dead_code, unused_imports))]
// A test binary is a program of its own; there nothing calls most of this.
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
mod contexts;
#[cfg(feature = "preloaded")]
mod environment;
mod fault;
mod handlers;
mod hooks;
mod interrupted;
mod lookup;
mod pages;
mod peek;
#[cfg(not(feature = "preloaded"))]
mod plain;
mod program;
#[cfg(feature = "preloaded")]
mod real;
mod shared;
#[cfg(feature = "preloaded")]
mod signals;
#[cfg(feature = "preloaded")]
mod spawn;
mod stacks;
#[cfg(feature = "preloaded")]
mod start;
#[cfg(feature = "preloaded")]
mod syscall;
#[cfg(feature = "preloaded")]
mod takes;
