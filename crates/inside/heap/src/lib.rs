//! The live heap: an allocator that is preloaded into unmodified programs by `sunder run` and
//! places objects by the policies of `sunder-placement`. Its settings are in the environment.
//!
//! - [`entry`] has the functions that the program calls; the fast paths are there and in [`span`].
//! - [`heap`] is one thread's heap: *bins* of spans with blocks of one size.
//!   [`budget`] says how much memory bins of single sizes and call sites may take.
//! - [`span`] is a run of 64 KiB slices with blocks of one size, all allocated by one heap; other
//!   threads return blocks through a lock-free list. [`block`] is a free block.
//! - [`arena`] manages the address space, in [`segments`] of 4 MiB with a header each, and returns
//!   memory to the system; [`huge`] maps the largest blocks.
//! - [`pool`] keeps the heaps of threads that have ended for new ones.
//! - [`lock`] has the locks behind which threads share what is no thread's own, and [`fork`] makes it
//!   good in children.
//! - [`exec`] takes the heap from programs that are executed and can't have it.
//! - [`fatal`] ends a program that has damaged the heap, with a sentence; [`sunder_guest::code`] says
//!   for it where a call lies.
//! - [`start`] is the constructor, and [`config`] has the settings that it reads.
//! - [`site`] finds the call site of an allocation, under policies that need it.
//!
//! A heap belongs to one thread at a time. Lines never hold blocks of two
//! living threads (Hoard), since a span belongs to one heap and a new owner of
//! a heap leaves the spans of the old one alone until they are empty, unless
//! each of their blocks has lines of its own.
//!
//! No code here panics or unwinds, and none allocates from this heap itself.

// A test binary keeps its own malloc and does not call most of this.
#![cfg_attr(
    test,
    allow(dead_code, clippy::disallowed_methods, clippy::disallowed_macros)
)]

mod arena;
mod block;
mod budget;
mod config;
mod entry;
mod exec;
mod fatal;
mod fork;
mod heap;
mod huge;
mod large;
mod local;
mod lock;
mod memory;
mod pool;
mod segments;
mod shared;
mod site;
mod span;
mod start;
mod table;
