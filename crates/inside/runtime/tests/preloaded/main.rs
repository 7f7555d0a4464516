//! Runs C programs as the tool does, with the library preloaded and a segment that the test owns,
//! and compares the segment's records with what the programs print.

// Runs outside the target.
#![allow(clippy::disallowed_methods, clippy::disallowed_macros)]

mod behaviour;
mod creation;
mod harness;
mod heap;
mod library;
mod timer;
