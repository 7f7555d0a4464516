//! The kernel's interface to perf events: opening them, mapping their rings, reading their records,
//! and saying why one was refused.
//!
//! The samplers, the watchpoints, the probes and the import of recordings build on it. It must not
//! choose what to observe. Files come from anywhere, so nothing in a record is trusted: a record
//! that is shorter than its fields is left out.

mod diagnosis;
mod event;
mod notice;
mod record;
mod refusal;
mod ring;
mod sample;
mod wait;

pub use diagnosis::paranoid_level;
pub(crate) use event::{Attr, EventTarget, PerfEvent, USER_REGISTERS};
pub(crate) use notice::{Inodes, event_of};
/// Structures and numbers of `linux/perf_event.h`.
pub(crate) use perf_event_open_sys::bindings as kernel;
pub(crate) use record::{Fields, Record, Records};
pub use refusal::PerfRefusal;
pub(crate) use ring::{PAGE, Ring};
pub(crate) use sample::{Sample, SampleLayout};
pub(crate) use wait::{poll, poll_until};
