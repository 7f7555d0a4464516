//! Memory events of the hardware's performance-monitoring unit (design 4.2):
//! which there are, reading them live, and what their samples mean. Recordings
//! of the same events come through `import`.
//!
//! Where there are such events, they tell exact addresses, and whether a line
//! was modified in another core's cache. They must not be relied on: most
//! virtual machines have none.

mod data_source;
mod events;
pub(crate) mod record;
mod sampler;
mod sysfs;

pub(crate) use data_source::access_of;
pub use data_source::{DataSource, refine};
pub use sampler::PmuSampler;
pub(crate) use sampler::{machine_events, try_open};
