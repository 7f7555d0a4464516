//! The sampler on `perf_event_open` (design 4.1): a software clock that needs
//! no PMU delivers the user registers of every thread of a process, and what
//! the process maps, forks and executes. Called by the program; the target
//! is neither stopped nor changed.
//!
//! Reports only executable mappings; `crate::proc` reads the others. When the target executes a
//! set-user-id program, the kernel ends the observation, and so the stream.

mod cheaper;
mod first;
mod of_cpu;
mod on_cpus;
mod open;
mod plan;
mod record;
mod sampler;
mod stream;
mod system;
mod waited;

pub use crate::perf_event::{PerfRefusal, paranoid_level};
pub use first::FirstEvent;
pub use plan::{FrequencyPlan, MAX_FREQUENCY};
pub use sampler::PerfSampler;
pub use system::{SystemSampler, interrupt_cost, refusal as system_refusal};
pub use waited::Wait;
