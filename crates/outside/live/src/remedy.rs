//! What a remedy is to the loop around a running target. `protect` and `repair` implement it;
//! the loop knows nothing of how they work.

use crate::choice::Chosen;
use crate::observer::Observer;
use crate::watching::Live;
use anyhow::Result;
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;
use sunder_access::ProcessId;
use sunder_findings::Limit;
use sunder_observe::ObserveError;
use sunder_observe::launch::Child;
use sunder_pipeline::Wanted;

/// What goes into the program beside the runtime library.
pub struct Loaded {
    /// The library's path.
    pub library: PathBuf,
    /// A variable that it reads.
    pub variable: OsString,
    /// Its value.
    pub value: OsString,
}

/// A remedy that acts on the program while it is observed: repair or protect.
pub trait LiveRemedy {
    /// What is loaded into the program.
    fn load(&self) -> Option<Loaded>;
    /// The observer, if the remedy brings one of its own.
    fn observer(&self) -> Option<(Box<dyn Observer>, Chosen)> {
        None
    }
    /// Whether the program must not begin before samples of it are taken: where what is
    /// seen of it is all that there will be.
    fn waits_for_samples(&self) -> bool {
        true
    }
    /// Whether the command has an option to follow the processes that the program starts.
    fn can_follow(&self) -> bool {
        true
    }
    /// Which lines the caller wants findings for.
    fn wanted(&self) -> Wanted {
        Wanted::All
    }
    /// The program has a number and has not begun.
    ///
    /// # Errors
    /// If it must not begin.
    fn begins(&mut self, process: ProcessId) -> Result<()>;
    /// Something may have been seen.
    fn step(&mut self, live: &mut Live);
    /// What the result must say of it.
    fn limits(&self) -> Vec<Limit> {
        Vec::new()
    }
    /// How long the next step may be away, if that matters.
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
