//! How far an observation has come, for whoever shows it while it goes on. The loop in `watching` makes
//! it; it must not name objects, because reading debug information would hold the loop up.

use std::time::Duration;
use sunder_access::Address;

/// Shows how far an observation has come. It must not block: samples are lost meanwhile.
pub type Show = fn(&Seen);

/// The pause between two calls of [`Show`].
pub(crate) const SHOWN_EVERY: Duration = Duration::from_millis(250);

/// A stage is told for so long after it was seen last.
const LASTS: Duration = Duration::from_secs(1);

/// What was seen so far.
#[derive(Clone, Debug, PartialEq)]
pub struct Seen {
    /// The time since the observation began.
    pub elapsed: Duration,
    /// What is being done.
    pub stage: Stage,
    /// Samples.
    pub samples: u64,
    /// Threads that were seen.
    pub threads: u32,
    /// The line that may cost most.
    pub suspect: Option<Suspected>,
}

/// A line that may be shared falsely.
#[derive(Clone, Debug, PartialEq)]
pub struct Suspected {
    /// The line's first byte.
    pub line: Address,
    /// What it is a part of: a file's path, `[heap]`, or empty; not cleaned.
    pub of: String,
    /// The share of its threads' time, 0 to 1, that it may cost.
    pub cost_share: f64,
}

/// What an observation is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// It takes samples.
    Sampling,
    /// It watches suspects with watchpoints.
    Confirming,
    /// It compares threads with and without their rivals.
    Measuring,
    /// It moves bytes.
    Moving,
    /// The program has ended, and its objects get names.
    Naming,
}

/// The stage that was seen last.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latest(Option<(Stage, Duration)>);

impl Latest {
    /// At `now`, this is done.
    pub(crate) fn note(&mut self, stage: Stage, now: Duration) {
        self.0 = Some((stage, now));
    }

    /// What is done at `now`.
    pub(crate) fn at(self, now: Duration) -> Stage {
        match self.0 {
            Some((stage, since)) if now < since + LASTS => stage,
            _ => Stage::Sampling,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stage_is_told_for_a_while_and_then_only_samples_are_taken() {
        let at = Duration::from_millis;
        let mut latest = Latest::default();
        assert_eq!(latest.at(at(0)), Stage::Sampling);
        latest.note(Stage::Confirming, at(100));
        assert_eq!(latest.at(at(1_099)), Stage::Confirming);
        latest.note(Stage::Measuring, at(1_050));
        assert_eq!(latest.at(at(1_099)), Stage::Measuring);
        assert_eq!(latest.at(at(2_050)), Stage::Sampling);
    }
}
