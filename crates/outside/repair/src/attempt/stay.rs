//! One stay of moved bytes at their new place, and whether what it gained is worth it. Called by
//! `attempt`. Pure.

use sunder_access::ThreadId;
use sunder_plan::progress::{Gain, WORTH_KEEPING};

/// One stay of the bytes at their new place.
#[derive(Clone, Debug, Default)]
pub struct Stay {
    /// When they were moved, in ns of the monotonic clock.
    pub applied: u64,
    /// How long the move took, in ns.
    pub took: u64,
    /// Faults on the area in earlier stays.
    pub(super) faults_before: u64,
    /// Faults on the area in this stay.
    pub faults: u64,
    /// Gain of each thread; empty if none was measured.
    pub gains: Vec<(ThreadId, Gain)>,
    /// It ends because threads contend for bytes that it has left together.
    pub leaves_together: bool,
    /// Why the bytes were put back (a number of `sunder_wire::remap`), and when.
    pub back: Option<(u32, u64)>,
}

impl Stay {
    /// How many times as fast the threads got on; the mean of all.
    pub fn gain(&self) -> Option<f64> {
        mean(&self.gains)
    }

    /// The same of the thread that got on worst.
    pub fn least_gain(&self) -> Option<f64> {
        least(&self.gains)
    }
}

/// Whether such gains pay. A program that waits for all of its threads is as fast as the slowest,
/// so none may lose more than chance explains.
pub(super) fn pays(gains: &[(ThreadId, Gain)]) -> bool {
    mean(gains).is_some_and(|mean| mean >= WORTH_KEEPING)
        && least(gains).is_some_and(|least| least * WORTH_KEEPING >= 1.0)
}

fn least(gains: &[(ThreadId, Gain)]) -> Option<f64> {
    gains.iter().map(|g| g.1.ratio).min_by(f64::total_cmp)
}

/// The geometric mean of the gains: if one thread got twice as fast and another half as fast,
/// nothing was gained.
pub(super) fn mean(gains: &[(ThreadId, Gain)]) -> Option<f64> {
    let sum: f64 = gains.iter().map(|g| g.1.ratio.ln()).sum();
    (!gains.is_empty()).then(|| (sum / gains.len() as f64).exp())
}
