//! What is known of an observer before it is opened. The file of each observer holds its own
//! [`Kind`]; the table of all is in `choice`.

use crate::observer::LiveObserver;
use anyhow::Result;
use sunder_access::ProcessId;
use sunder_findings::Limit;

/// The observer that the user asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum ObserverChoice {
    /// The best that this machine offers.
    #[default]
    Auto,
    /// Samples from the kernel's perf interface.
    Perf,
    /// Samples from timers inside the program, where perf is refused.
    Timer,
    /// Memory events of the processor's performance monitoring unit.
    Pmu,
    /// What each thread changed while it computed on pages of its own (SHERIFF-DETECT): exact,
    /// but writes alone, and slower.
    Isolate,
}

/// A kind of observer.
#[derive(Debug)]
pub struct Kind {
    /// The choice that means it.
    pub choice: ObserverChoice,
    /// Its name, for users and in results.
    pub name: &'static str,
    /// What it takes, in one sentence.
    pub about: &'static str,
    /// The same in a few words.
    pub in_brief: &'static str,
    /// Its place in the order in which [`ObserverChoice::Auto`] tries observers; `None` if it is
    /// never tried.
    pub rank: Option<u8>,
    /// Why it does not work on this machine; `None` if it works.
    pub refusal: fn() -> Option<String>,
    /// What the user can do where it does not work.
    pub instead: &'static str,
    /// What the result says if [`ObserverChoice::Auto`] had to do without it, for this reason.
    pub missed: fn(String) -> Option<Limit>,
    /// What its events measure.
    pub measure: Measure,
    /// Whether it needs a library of ours in the program.
    pub needs_library: bool,
    /// Whether its samples come through the segments of the runtime.
    pub needs_segment: bool,
    /// Opens it.
    pub open: fn(&OpenOptions) -> Result<Opened>,
}

/// What an observer is opened for.
#[derive(Clone, Copy, Debug)]
pub struct OpenOptions {
    /// A child that has not yet been let go.
    pub child: ProcessId,
    /// Samples per second and thread, if the user set them.
    pub frequency: Option<u32>,
    /// Whether the processes that the child starts are observed too.
    pub follow_children: bool,
}

/// What events measure, and so how their cost is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// Samples of time, which carry their cost.
    Time,
    /// Counts of accesses. Their cost is computed while they arrive, from the cost of a
    /// transfer.
    Counts,
    /// Counts of what differed after equal intervals.
    Differences,
}

/// An opened observer, and how the report describes it.
pub type Opened = (Box<dyn LiveObserver>, Chosen);

/// An opened observer, as the report describes it.
#[derive(Clone, Copy, Debug)]
pub struct Chosen {
    /// Its name in the result.
    pub name: &'static str,
    /// Highest and lowest samples a second and thread.
    pub frequencies: (u32, u32),
}
