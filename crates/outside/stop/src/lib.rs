//! Threads of other processes, stopped with `ptrace`: the only room outside the target that
//! speaks it. A [`Stopped`] thread has its registers read and written; a [`World`] is a process
//! with all of its threads stopped; a [`Borrowed`] thread executes a few instructions for us
//! and goes on as if nothing had happened.
//!
//! Used by `protect` and `repair`. It must not decide when to stop anybody or what to do then,
//! and must leave no thread stopped: whatever is dropped here goes on.

mod awake;
mod borrowed;
mod frame;
mod stands;
mod thread;
mod waits;
mod world;

pub use awake::stay_awake;
pub use borrowed::{Borrowed, Gate, STUB};
pub use stands::{stands, top_of};
pub use thread::{Collector, Stop, Stopped, request, sweep, wait};
pub use world::{Memory, StopError, World, exit, may_trace, set_mask};
