//! The interface between a remedy and the loop around a running target. `protect` and `repair`
//! implement it; the loop knows nothing about how they work.

use crate::kind::Opened;
use crate::watching::Live;
use anyhow::Result;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::{Findings, Limit};
use sunder_observe::ObserveError;
use sunder_observe::launch::Child;
use sunder_observe::watch::Budget;
use sunder_pipeline::Wanted;

/// A library that is loaded into the program in addition to the runtime library.
pub struct Loaded {
    /// The library's path.
    pub library: PathBuf,
    /// An environment variable that the library reads.
    pub variable: OsString,
    /// Its value.
    pub value: OsString,
}

/// A remedy that acts on the program while it is observed: repair or protect.
pub trait LiveRemedy {
    /// The library to load into the program, if any.
    fn load(&self) -> Option<Loaded>;
    /// The observer, if the remedy brings one of its own.
    fn observer(&self) -> Option<Opened> {
        None
    }
    /// Whether the program must not begin before it is sampled. True where these samples are
    /// all that will be known about it.
    fn waits_for_samples(&self) -> bool {
        true
    }
    /// Whether the command has an option to follow the processes that the program starts.
    fn can_follow(&self) -> bool {
        true
    }
    /// What watchpoints may cost, if their share of the program's CPU time is to be `share`.
    fn budget(&self, share: f64) -> Budget {
        Budget::of(share)
    }
    /// Which lines the caller wants findings for.
    fn wanted(&self) -> Wanted {
        Wanted::All
    }
    /// Called when the process exists and its program has not begun.
    ///
    /// # Errors
    /// If the program must not begin.
    fn begins(&mut self, process: ProcessId) -> Result<()>;
    /// Called after each step of the loop, when events may have come.
    fn step(&mut self, live: &mut Live);
    /// Called when the program has ended and all events have been taken.
    fn ended(&mut self, _live: &mut Live) {}
    /// What it measured, as a recording of the run keeps it. Asked for when the program has ended.
    fn measured(&self) -> Option<String> {
        None
    }
    /// Adds to the result what the remedy knows of the findings.
    fn complete(&self, _result: &mut Findings) {}
    /// What the result must say about the remedy.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }
    /// The longest time until the next call of `step`, if it matters.
    fn patience(&self) -> Option<Duration> {
        None
    }
    /// Collects the program's exit status if it has ended. A remedy that stops threads waits for
    /// them too, and may have collected the status already.
    ///
    /// # Errors
    /// If the kernel does not know the program.
    fn collect(&mut self, child: &mut Child) -> Result<Option<ExitStatus>, ObserveError> {
        child.try_wait()
    }
}

/// No remedy: the program is only observed.
pub struct NoRemedy;

impl LiveRemedy for NoRemedy {
    fn load(&self) -> Option<Loaded> {
        None
    }

    fn begins(&mut self, _process: ProcessId) -> Result<()> {
        Ok(())
    }

    fn step(&mut self, _live: &mut Live) {}
}
