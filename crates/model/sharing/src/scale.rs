//! The lengths of time and space that the arithmetic of every line depends on.

use crate::config::MIN_GAP_WINDOWS;
use sunder_access::Time;

/// What every line must know about the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub granule: usize,
    pub window_ns: u64,
    pub transfer_ns: f64,
    pub diff_interval_ns: Option<u64>,
    pub origin: Time,
}

impl Scale {
    /// The longest absence in a complete sequence after which a thread still returns. With
    /// comparisons of pages, the next comparison is one interval later, and may be late by half
    /// of one.
    pub fn absence_ns(&self) -> u64 {
        let by_diffs = self
            .diff_interval_ns
            .map(|interval| interval + interval / 2);
        by_diffs.unwrap_or(MIN_GAP_WINDOWS * self.window_ns)
    }
}
