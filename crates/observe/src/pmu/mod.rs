//! Memory events of the hardware's performance-monitoring unit (design 4.2).

mod data_source;
pub(crate) mod record;

pub(crate) use data_source::access_of;
pub use data_source::{DataSource, refine};
