//! Stops threads of other processes with `ptrace`; the only crate outside of the target that uses
//! it. A [`Stopped`] thread is held while its registers are read and written; [`Held`] holds some threads
//! of a process, a [`World`] all of them; a [`Borrowed`] thread executes a few instructions for us and is put back
//! to where it was.
//!
//! Used by `gain`, `protect` and `repair`, and by `live` for [`stay_awake`]. It must not decide when a
//! thread is stopped, or what is done with it then. It must leave no thread stopped: a thread goes
//! on when the value that holds it is dropped.

mod awake;
mod borrowed;
mod frame;
mod held;
mod same;
mod stands;
mod thread;
mod waits;
mod world;

pub use awake::stay_awake;
pub use borrowed::{Borrowed, Gate, STUB};
pub use held::{Held, let_go};
pub use stands::{stands, top_of};
pub use thread::{Collector, Stop, Stopped, childrens_percent, sweep, wait};
pub use world::{Memory, StopError, World, exit, may_trace, set_mask};
