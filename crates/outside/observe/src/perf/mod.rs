//! The sampler on `perf_event_open` (design 4.1): a software clock that needs
//! no PMU delivers the user registers of every thread of a process, and what
//! the process maps, forks and executes. Called by the program; the target
//! is neither stopped nor changed.
//!
//! Mappings are reported only if they are executable; `crate::proc` reads the
//! others. A set-user-id program takes itself out of observation when it is
//! executed: the stream then ends.

mod first;
mod open;
mod plan;
mod record;
mod refusal;
pub(crate) mod ring;
mod sampler;

pub use first::FirstEvent;
pub use plan::{FrequencyPlan, MAX_FREQUENCY};
pub use refusal::{PerfRefusal, paranoid_level};
pub use sampler::{PerfSampler, Wait};
