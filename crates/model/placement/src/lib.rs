//! Allocation policies as pure code: which requests may share pages and lines, how blocks lie
//! in the memory of a bucket, and how many pages that takes.
//!
//! There are two users. The simulator replays a program's requests through a [`Placer`], which
//! computes addresses and touches no memory. The live heap takes only the decisions
//! ([`Placement::bucket`], [`class`]) and carries them out on real memory. The decisions
//! ([`policy`], [`class`], [`pages`]) therefore use nothing but `core`.
//!
//! Source: Lee, Park and Yoon, "SCSTallocator", sections 2 to 4; for per-thread
//! heaps Berger et al., "Hoard" (its reference 14).
//!
//! Called by the simulator and by the live heap. It must not touch the memory in which it
//! places objects, make system calls, or read a clock.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod arena;
mod blocks;
pub mod class;
mod error;
pub mod pages;
pub mod placer;
pub mod policy;

pub use arena::{Arena, Reserve};
pub use error::PlacementError;
pub use pages::Pages;
pub use placer::{Placed, Placer, Stats};
pub use policy::{Bucket, CallSite, Placement, Policy, Request};
