//! The second pass for granules that are pages. Too many objects lie on one page to look at its
//! bytes as at those of a line. The pages that moved are simulated again, with a tag on each
//! access that names its object and its instruction. So each miss is counted for the object
//! that was accessed and for the object whose write caused it. The memory used depends on the
//! shared pages, their objects and the code that touches them; single bytes are kept for the
//! costliest pages only.
//!
//! Called by `attribute`. Replays of parts of a trace count with the same types, by address and call
//! stack (`parts::pages`), and the merge makes the findings here. It must not know how a result is shown.

pub mod counting;
mod findings;
mod pass;
pub mod subjects;

pub use findings::findings;
pub use pass::{CostlyPage, Counted, Details, Uses, costliest, costly, count};
