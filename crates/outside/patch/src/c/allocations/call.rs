//! A call that allocates, and a function that only hands its memory on.

use std::ops::Range;

/// A call that allocates.
pub(crate) struct Call {
    pub range: Range<usize>,
    /// `malloc`, `calloc` and so on, with its arguments, as they are after wrappers and macros.
    pub allocator: String,
    pub arguments: Vec<String>,
    /// The text around the allocator's call that a macro puts there.
    pub around: Option<(String, String)>,
}

/// A function that passes its parameters on to an allocator, and returns the block.
pub(crate) struct Wrapper {
    pub name: String,
    pub parameters: Vec<String>,
    pub allocator: String,
    pub arguments: Vec<String>,
}
