//! Observes the memory accesses of a program.
//!
//! Every observer produces [`Event`]s. One decoder makes accesses of samples, whichever observer
//! took them. Called by the pipeline, live or on a recording, and by the remedies. This crate must
//! not judge or name what it observes, and must not change the target.

mod clock;
pub mod code;
pub mod decode;
mod error;
mod event;
pub mod foreign;
pub mod generated;
pub mod import;
pub mod launch;
pub mod machine;
pub mod pace;
pub mod pending;
pub mod perf;
mod perf_event;
pub mod pmu;
pub mod presence;
pub mod proc;
pub mod remote;
pub mod slots;
pub mod watch;

pub use clock::{monotonic_now, thread_time};
pub use code::ProcessCode;
pub use decode::{CodeRange, CodeSource, Decoded, Decoder, NearAccess, Slot};
pub use error::ObserveError;
pub use event::{Event, RawSample, Registers};
pub use import::{ImportError, Imported, import};
pub use launch::{Child, Launch, Prepared};
pub use pace::{Pace, PaceSample};
pub use perf::{FrequencyPlan, PerfRefusal, PerfSampler, SystemSampler, Wait};
pub use pmu::PmuSampler;
pub use presence::{Presence, Turns};
pub use slots::SlotReader;
pub use watch::{Budget, Burst, BurstRequest, WatchError, Watcher};

/// The calling thread.
fn own_thread() -> sunder_access::ThreadId {
    sunder_access::ThreadId(rustix::thread::gettid().as_raw_nonzero().get() as u32)
}
