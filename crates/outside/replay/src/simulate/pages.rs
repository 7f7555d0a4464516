//! The second pass for granules that are pages. Too many objects lie on one page to look at its
//! bytes as at those of a line. The pages that moved are simulated again, with a tag on each
//! access that names its object and its instruction. So each miss is counted for the object
//! that was accessed and for the object whose write caused it. The memory used depends on the
//! shared pages, their objects and the code that touches them; single bytes are kept for the
//! costliest pages only.
//!
//! Called by `attribute`. It must not know how a result is shown.

mod counting;
mod findings;
mod pass;
mod subjects;

pub use findings::findings;
pub use pass::count;
