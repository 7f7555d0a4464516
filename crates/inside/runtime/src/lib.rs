//! The library that is preloaded into the target by `sunder detect` and the commands that
//! observe like it. It records the live heap and the threads in the shared segment
//! (`sunder-wire`) and samples registers by CPU-time timers; what any of it means
//! is decided outside.
//!
//! It must never change what the target does: no result, no `errno`, no memory layout (but where the
//! isolating library beside it gives blocks lines of their own), no environment, no signal that the
//! target uses. Where it cannot do its work, it stays passive and
//! counts the failure.
//!
//! Every module names the contexts in which its code runs:
//! - *pre-init*: before our constructor, possibly inside the dynamic linker;
//! - *normal*: any thread, any time, also while other threads fork or exit;
//! - *signal*: inside a signal handler: async-signal-safe calls only;
//! - *post-fork*: in a forked child, where the runtime is passive (the state
//!   page is wiped by the kernel).
//!
//! No code here allocates from the heap, panics or unwinds.

// A test binary keeps its own malloc and does not call most of this.
#![cfg_attr(
    test,
    allow(dead_code, clippy::disallowed_methods, clippy::disallowed_macros)
)]

mod blocks;
mod cfi;
mod companion;
mod entry;
mod exec;
mod follow;
mod frames;
mod local;
mod lock;
mod real;
mod record;
mod segment;
mod signals;
mod stack;
mod start;
mod state;
mod syscall;
mod tables;
mod thread;
mod timer;
