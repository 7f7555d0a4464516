//! Memory events of the hardware's performance-monitoring unit (design 4.2).

pub(crate) mod record;
