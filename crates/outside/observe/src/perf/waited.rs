//! Why a sampler's wait is over. Returned by all samplers.

/// Why the wait of a sampler is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wait {
    /// A ring has filled to a quarter.
    Ready,
    /// The time is over, or a signal came.
    TimedOut,
    /// All observed threads have ended; from now on it returns at once.
    Ended,
}
