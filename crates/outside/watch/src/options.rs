//! How to watch, and what the caller may ask meanwhile.

use crate::answers::Answers;
use crate::select::Selection;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_observe::pending::Pending;
use sunder_observe::proc;

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
    /// Processes that are left alone.
    pub shunned: Shunned,
    /// Where reads of processes are noted for whoever ends this one if one does not end.
    pub pending: &'static Pending,
}

/// Processes that are left alone, since reads of their memory did not end.
#[derive(Clone, Debug, Default)]
pub struct Shunned {
    /// Their numbers, and when they started, in clock ticks after the machine's start.
    pub processes: Vec<(ProcessId, u64)>,
    /// Users with several such processes: all of theirs.
    pub users: Vec<u32>,
}

impl Shunned {
    /// Whether this process is left alone.
    pub fn holds(&self, process: ProcessId, started_ticks: u64) -> bool {
        let is_of_user = || {
            let user = proc::status(process).map(|status| status.user);
            user.is_ok_and(|user| self.users.contains(&user))
        };
        self.processes.contains(&(process, started_ticks)) || !self.users.is_empty() && is_of_user()
    }
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
