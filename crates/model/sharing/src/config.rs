//! The judge's configuration, and the constants of its rules, each with its reason. Nothing
//! here is tuned to one workload.

use sunder_access::{ByteMask, Granule, Time};

/// What can be wrong with a configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A line's bytes are told apart by a [`ByteMask`], which has a fixed size.
    #[error("lines of {0} bytes cannot be judged: at most 256 bytes have a mask")]
    GranuleTooLarge(u64),
}

/// The judge's configuration. Build it with [`Config::new`] and change what differs.
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
    /// For accesses that come from comparing pages with their twins: the interval between two
    /// comparisons, in ns. Interleavings are then derived from these alone, as changes in
    /// neighbouring intervals. Samples in time are as far apart as the comparisons, so they
    /// would see turns shorter than an interval as random order; they only tell how long
    /// threads are on a line.
    pub diff_interval_ns: Option<u64>,
    /// The most lines that are kept at a time; see the crate's notes on memory.
    pub max_lines: usize,
    /// Where the time slots of lines begin. If none, at the first access of any line.
    pub origin: Option<Time>,
    /// Whether nothing is dropped for lack of room: neither lines, nor first touches, nor verdicts.
    /// With it and an `origin`, what is found of a line of an exact stream depends on the accesses to
    /// this line alone. Memory then grows with the lines, and the caller has to bound it.
    pub keeps_all: bool,
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
            origin: None,
            keeps_all: false,
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

/// The number of samples of a running thread in a window. Ten samples tell a thread's share of
/// time within one window to about a third (1/sqrt(10)), and keep a window an order of
/// magnitude shorter than a phase that a user notices.
pub const SAMPLES_PER_WINDOW: u64 = 10;

/// The number of returns (see [`Verdict::evidence`](crate::Verdict::evidence)) that a verdict
/// needs if it rests on samples. Sequential use gives at most one return for each time that one
/// thread prepares an object, a second uses it for less than a window, and the first collects
/// it; two such coincidences may meet on a line. Four returns exclude them. A line that costs
/// 1% of two threads' time gives four in 4 s at 250 Hz, in 10 s at 99 Hz and in a quarter of a
/// second at 4 kHz.
pub const MIN_EVIDENCE: u32 = 4;

/// The number of changes of thread, in bursts or exact streams, that confirms an interleaving.
/// A lock or queue entry that is handed over and back makes two changes; ten are five such
/// rounds within a burst of a few milliseconds.
pub const CONFIRMING_CHANGES: u64 = 10;

/// A line with bytes that several threads share is truly shared if a smaller share of its
/// interleavings is false, and mixed from this share on. Separating what causes less than a
/// tenth of the interleavings is not worth a line. For doubtful shares the two kinds of
/// evidence differ. A counted share must exceed the limit by two of its standard errors for the
/// line to be mixed. A share estimated from samples must stay below it by two for the line to
/// be truly shared, because reports do not show true sharing.
pub const MIXED_FROM: f64 = 0.10;

/// Touches that are more windows apart than this never count as simultaneous, however rarely
/// the line is touched.
pub(crate) const MAX_GAP_WINDOWS: u64 = 32;

/// Touches within this many windows (the same and the adjacent one) may always be simultaneous.
pub(crate) const MIN_GAP_WINDOWS: u64 = 2;
