//! Runs C programs with the library preloaded and a segment of the test's own,
//! as the tool does, and compares what the segment says with what the programs
//! say of themselves.

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod behaviour;
mod creation;
mod harness;
mod heap;
mod library;
mod timer;
