//! The live heap: an allocator that is preloaded into unmodified programs by `sunder run`
//! and places objects by the policies of `sunder-placement`. The environment says
//! what to do.
//!
//! - [`entry`] is what the program calls; the paths that most calls take are
//!   there and in [`span`].
//! - [`heap`] is one thread's heap: *bins* of spans with blocks of one size.
//! - [`span`] is a run of 64 KiB slices with blocks of one size, all allocated by
//!   one heap; other threads hand blocks back through a lock-free list.
//! - [`arena`] has the address space, in segments of 4 MiB with a header each,
//!   and gives memory back to the system; [`huge`] maps the largest blocks.
//! - [`pool`] keeps the heaps of threads that have ended for new ones.
//! - [`site`] tells where an object was asked for, under policies that ask.
//!
//! A heap belongs to one thread at a time. Lines never hold blocks of two
//! living threads (Hoard), since a span belongs to one heap and a new owner of
//! a heap leaves the spans of the old one alone until they are empty.
//!
//! No code here panics or unwinds, and none allocates from the heap that it is.

// A test binary keeps its own malloc, so there nothing calls most of this.
#![cfg_attr(
    test,
    allow(dead_code, clippy::disallowed_methods, clippy::disallowed_macros)
)]

mod arena;
mod bin;
mod config;
mod entry;
mod fatal;
mod heap;
mod huge;
mod large;
mod local;
mod lock;
mod memory;
mod pool;
mod shared;
mod site;
mod span;
mod table;
