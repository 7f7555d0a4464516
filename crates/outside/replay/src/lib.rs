//! Replays a recorded trace on machines of one's choice, with objects moved if asked
//! ([`simulate`]), and tries by itself what takes falsely shared objects apart ([`what_if`]). The
//! result has the shape of every other result.
//!
//! Used by the library `sunder`. It must not look at a live process, and must not print: how far
//! it has come goes to the caller's [`Progress`].

pub mod options;
mod progress;
pub mod simulate;
pub mod what_if;

pub use options::{Order, PlacementAsked, Simulate, WhatIf};
pub use progress::{Advance, NoProgress, Progress};
