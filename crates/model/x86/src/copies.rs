//! Limits that the rewriter, which makes copies of code, and the library in the target,
//! which sends threads into them, have in common.

/// Conditions that one entry into a copy may demand of a thread's registers.
pub const CONDITIONS: usize = 8;
