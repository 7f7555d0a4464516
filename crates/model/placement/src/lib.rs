//! Where does an object go? Allocation policies as pure code: which requests
//! may share pages and lines, how blocks lie in the memory of a bucket, and
//! what that costs in pages.
//!
//! Two users: the simulator replays a program's requests through a [`Placer`],
//! which deals in addresses and touches no memory; the live heap takes the
//! decisions alone ([`Placement::bucket`], [`class`]) and does the rest on real
//! memory. The decisions ([`policy`], [`class`], [`pages`]) therefore use
//! nothing but `core`.
//!
//! Source: Lee, Park and Yoon, "SCSTallocator", sections 2 to 4; for per-thread
//! heaps Berger et al., "Hoard" (its reference 14).
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
