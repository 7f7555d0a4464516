//! Limits of copied code, used by the rewriter, which makes the copies, and by the library in
//! the target, which moves threads into them.

/// The most conditions on a thread's registers for one entry into a copy.
pub const CONDITIONS: usize = 8;
