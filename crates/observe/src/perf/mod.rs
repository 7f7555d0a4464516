//! The sampler on `perf_event_open` (design 4.1): a software clock that needs
//! no PMU delivers the user registers of every thread of a process, and what
//! the process maps, forks and executes. Called by the program; the target
//! is neither stopped nor changed.

mod refusal;

pub use refusal::{PerfRefusal, paranoid_level};
