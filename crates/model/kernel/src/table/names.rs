//! The numbers of calls by name, for tests.

#![allow(non_upper_case_globals)]

pub use libc::*;

// These are newer than the crate.
pub const SYS_futex_wake: c_long = 454;
pub const SYS_futex_wait: c_long = 455;
