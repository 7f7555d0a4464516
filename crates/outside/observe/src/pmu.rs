//! Memory events of the hardware's performance-monitoring unit (design 4.2): discovering them,
//! reading them live, and translating their samples. Recordings of the same events come through
//! `import`.
//!
//! Such events have exact addresses, and say whether a line was modified in another core's cache.
//! Nothing may depend on them: most virtual machines have none.

mod data_source;
mod events;
mod sampler;
mod sysfs;

pub(crate) use data_source::access_of;
pub use data_source::{DataSource, refine};
pub use sampler::PmuSampler;
pub(crate) use sampler::{machine_events, try_open};
