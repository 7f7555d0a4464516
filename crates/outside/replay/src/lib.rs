//! Replays a recorded trace on a chosen machine, with objects moved if asked ([`simulate`]),
//! and searches for changes that take falsely shared objects apart ([`what_if`]). The result
//! has the same schema as that of every other command. A trace that was cut by line is replayed in
//! parts ([`parts`]), wherever there are processors.
//!
//! Used by the library `sunder` and the program. It must not look at a live process, and must not print: the
//! number of events read goes to the caller's [`Progress`].

mod memory;
pub mod options;
pub mod parts;
mod progress;
#[cfg(test)]
mod recorded;
pub mod simulate;
pub mod what_if;

pub use memory::open;
pub use options::{Order, PlacementAsked, Simulate, WhatIf};
pub use progress::{Advance, NoProgress, Progress};
