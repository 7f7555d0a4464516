//! What the judge is told before it starts, and the constants of its rules,
//! each with its reason. Nothing here is tuned to one workload.

use sunder_access::{ByteMask, Granule};

/// What can be wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes of a line are told apart by a mask, which has an end.
    #[error("lines of {0} bytes cannot be judged: at most 256 bytes have a mask")]
    GranuleTooLarge(u64),
}

/// How to judge. Build it with [`Config::new`] and change what differs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Config {
    granule: Granule,
    /// Shortest span of time in which two threads count as being on a line
    /// together, in ns. Samples lengthen it to [`SAMPLES_PER_WINDOW`] periods.
    /// The default is the epoch of Plastic (section 6.2): 2 ms.
    pub window_ns: u64,
    /// What one transfer of a line between two cores costs, in ns. The default
    /// is the 90 ns of design section 4; measure it on the machine at hand.
    pub transfer_ns: f64,
    /// Where accesses come from comparing pages with their twins: the interval between
    /// two comparisons, in ns. Who interleaves is then told by these alone: changes in
    /// neighbouring intervals. Samples in time, which are as far apart, say only how long
    /// threads are on a line: they see turns of less than an interval as random order.
    pub diff_interval_ns: Option<u64>,
    /// Most lines kept at a time; see the crate's notes on memory.
    pub max_lines: usize,
}

impl Config {
    /// The defaults for lines of `granule` bytes.
    ///
    /// # Errors
    /// If the granule has more bytes than a [`ByteMask`].
    pub const fn new(granule: Granule) -> Result<Self, Error> {
        if granule.bytes() > ByteMask::BYTES {
            return Err(Error::GranuleTooLarge(granule.bytes()));
        }
        Ok(Self {
            granule,
            window_ns: 2_000_000,
            transfer_ns: 90.0,
            diff_interval_ns: None,
            max_lines: 1 << 16,
        })
    }

    /// The unit of coherence.
    pub const fn granule(&self) -> Granule {
        self.granule
    }
}

impl Default for Config {
    fn default() -> Self {
        match Self::new(Granule::LINE) {
            Ok(config) => config,
            Err(_) => unreachable!(),
        }
    }
}

/// Samples of a running thread that a window holds. Ten make the share of a
/// thread's time known to about a third (1/sqrt(10)) within one window, and
/// keep a window an order of magnitude shorter than a phase that one notices.
pub const SAMPLES_PER_WINDOW: u64 = 10;

/// A verdict that rests on samples needs so many returns (see
/// [`Verdict::evidence`](crate::Verdict::evidence)). Sequential use
/// gives at most one for each time that an object is prepared by one thread,
/// used by a second for less than a window, and collected by the first; two
/// such coincidences may meet on a line. Four leave them behind, and a line
/// that costs 1% of two threads' time gives four in 4 s at 250 Hz, in 10 s at
/// 99 Hz and in a quarter of a second at 4 kHz.
pub const MIN_EVIDENCE: u32 = 4;

/// Changes of thread in bursts or exact streams that confirm an interleaving.
/// A lock or queue entry that is handed over and back makes two; ten are five
/// rounds, in a burst of a few milliseconds.
pub const CONFIRMING_CHANGES: u64 = 10;

/// Below this share of false interleavings a line with common bytes is called
/// true sharing, above it mixed. Taking apart what causes less than a tenth of
/// the interleavings is not worth a line. What was counted must exceed it by twice
/// its own standard error; what only samples speak for must stay as far below it
/// to be true sharing, which a report does not show.
pub const MIXED_FROM: f64 = 0.10;

/// Touches further apart than so many windows never count as simultaneous,
/// however rarely the line is touched.
pub(crate) const MAX_GAP_WINDOWS: u64 = 32;

/// Touches within so many windows (the same and the adjacent one) always may.
pub(crate) const MIN_GAP_WINDOWS: u64 = 2;
