//! How to watch, and what the caller may ask meanwhile.

use crate::answers::Answers;
use crate::select::Selection;
use std::time::Duration;

/// How to watch.
#[derive(Clone, Debug)]
pub struct Options {
    /// Look for so long, once.
    pub once: Option<Duration>,
    /// How often each process is looked at, and the status told.
    pub interval: Duration,
    /// What watching may take, in percent of one CPU. Does not hold for a single look.
    pub budget_percent: f64,
    /// Samples a second on each CPU; `None`: as the budget allows.
    pub frequency: Option<u32>,
    /// Which processes.
    pub selection: Selection,
    /// From which cost on a finding counts, in percent.
    pub threshold: Option<f64>,
    /// Bytes of a line, if not the machine's.
    pub line_size: Option<u32>,
    /// The share of a process's time that watchpoints may take, in percent.
    pub watch_budget: f64,
    /// The machine's name.
    pub host: String,
    /// Where answers of debug information are kept.
    pub answers: Option<Answers>,
}

/// What the caller asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// To go on.
    Nothing,
    /// To read the facts of the machine anew.
    Anew,
    /// To end.
    End,
    /// To end without waiting for what is being named.
    Now,
}
