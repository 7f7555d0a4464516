//! How threads get on before their bytes are moved: what the speed after the move is held
//! against. Called by the pipeline at each step; only reads.

use super::gauge::{Bytes, Gauge, Windows};
use sunder_access::{ProcessId, ThreadId};

/// How threads get on whose bytes may be about to be moved.
#[derive(Default)]
pub enum Before {
    /// None are.
    #[default]
    Nothing,
    /// They are measured, with these bytes.
    Measuring(Box<Gauge>, Vec<Bytes>),
    /// They can't be.
    Refused,
}

impl Before {
    /// Begins, unless it has begun; a dry run has no use for it.
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

    /// Takes in what can be read now.
    pub fn read(&mut self) {
        if let Self::Measuring(gauge, bytes) = self {
            gauge.read(bytes);
        }
    }

    /// Whether nothing more is to be waited for.
    pub fn is_enough(&self) -> bool {
        match self {
            Self::Nothing => false,
            Self::Measuring(gauge, _) => gauge.is_enough(),
            Self::Refused => true,
        }
    }

    /// What was read.
    pub fn end(self) -> Windows {
        match self {
            Self::Measuring(gauge, _) => gauge.end(),
            _ => Windows::new(),
        }
    }
}
