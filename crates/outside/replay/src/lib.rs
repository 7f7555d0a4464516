//! Replays a recorded trace on a chosen machine, with objects moved if asked ([`simulate`]),
//! and searches for changes that take falsely shared objects apart ([`what_if`]). The result
//! has the same schema as that of every other command.
//!
//! Used by the library `sunder` and the program. It must not look at a live process, and must not print: the
//! number of events read goes to the caller's [`Progress`].

mod memory;
pub mod options;
mod progress;
pub mod simulate;
pub mod what_if;

pub use options::{Order, PlacementAsked, Simulate, WhatIf};
pub use progress::{Advance, NoProgress, Progress};
