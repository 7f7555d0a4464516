//! How fast threads get on before their bytes are moved, for comparison with the speed afterwards.
//! Called by `repairer` at each step. Only reads.

use sunder_access::{ProcessId, ThreadId};
use sunder_gain::gauge::{Bytes, Gauge, Windows};

/// Measurement of threads whose bytes may be moved.
#[derive(Default)]
pub enum Before {
    /// No thread is measured.
    #[default]
    Nothing,
    /// Threads are measured by these bytes.
    Measuring(Box<Gauge>, Vec<Bytes>),
    /// The threads can't be measured.
    Refused,
}

impl Before {
    /// Begins to measure, unless that has begun; not in a dry run, which needs no comparison.
    pub fn measure(&mut self, process: ProcessId, bytes: Vec<Bytes>, dry_run: bool) {
        if !matches!(self, Self::Nothing) || dry_run {
            return;
        }
        let mut threads: Vec<ThreadId> = bytes.iter().map(|b| b.thread).collect();
        threads.sort_unstable();
        threads.dedup();
        *self = match Gauge::begin(process, &threads) {
            Some(gauge) => Self::Measuring(Box::new(gauge), bytes),
            None => Self::Refused,
        };
    }

    /// Reads all values at this moment.
    pub fn read(&mut self) {
        if let Self::Measuring(gauge, bytes) = self {
            gauge.read(bytes);
        }
    }

    /// Whether there is nothing more to wait for.
    pub fn is_enough(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Measuring(gauge, _) => gauge.is_enough(),
            Self::Refused => true,
        }
    }

    /// The values that were read.
    pub fn end(self) -> Windows {
        match self {
            Self::Measuring(gauge, _) => gauge.end(),
            _ => Windows::new(),
        }
    }
}
