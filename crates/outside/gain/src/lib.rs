//! Measures what sharing costs: how fast a thread gets on beside its rivals, and how fast while they
//! are stopped for some milliseconds.
//!
//! [`Experiment`] is used by `cli` for `detect` and `attach --measure`, and driven by the loop of `live`. [`gauge`] is also used
//! by `repair` and `protect`, with [`before`], for the speed before and after what they do, and
//! [`gained`] tells the difference. It must not choose what is found or say what to do about
//! it, and must leave no thread stopped.

pub mod before;
mod clocks;
mod experiment;
pub mod gained;
pub mod gauge;
mod outcome;
mod slice;

pub use experiment::{Effort, Experiment};
pub use outcome::Measured;
