//! How the library gets into a program that we start. It comes only when there is something to
//! move, so that a program without false sharing stays untouched. While the contending threads are
//! measured, a thread of ours plans the hooks. When bytes are to be moved, all threads are stopped
//! and the library is put in. Where the kernel does not let us stop threads, the program loads the
//! library at its start instead. Called by `repairer` and `attach`.

use super::inject::Inside;
use super::plan::{Plan, Stay};
use super::refuse::unless_sound;
use crate::control::ControlFile;
use anyhow::{Context, Result, anyhow};
use std::thread::{Builder, JoinHandle};
use sunder_access::{Mappings, ProcessId};
use sunder_guests::MemoryFile;
use sunder_hooking::Calls;
use sunder_observe::proc;
use sunder_stop::may_trace;

/// Whether and how the library is in the program.
pub enum Entry {
    /// It is put in when there is something to move.
    Late(Late),
    /// The program loads it at its start, from this file.
    Preloaded(MemoryFile),
    /// We have put it into the running program.
    Inside(Box<Inside>),
    /// It is never put in, or was taken out.
    Never,
}

/// Preparations for putting the library in; none at first.
#[derive(Default)]
pub struct Late {
    planning: Option<JoinHandle<Result<Planned>>>,
}

/// What is needed to put the library into a program.
pub struct Planned {
    plan: Plan,
    calls: Calls,
    stay: Stay,
}

impl Entry {
    /// The entry for a program that we are about to start.
    ///
    /// # Errors
    /// If the kernel gives us no memory.
    pub fn of_a_child() -> Result<Self> {
        if may_trace() {
            return Ok(Self::Late(Late::default()));
        }
        let library = MemoryFile::remap().context("cannot make the library available")?;
        Ok(Self::Preloaded(library))
    }

    /// Bytes are about to be moved: starts the preparations that take long, if they were not
    /// started.
    pub fn plan(&mut self, process: ProcessId) {
        if let Self::Late(late) = self
            && late.planning.is_none()
        {
            let made = move || Planned::of_a_child(process);
            // If no thread can be started, `take` makes the plan.
            late.planning = Builder::new().name("sunder-plan".into()).spawn(made).ok();
        }
    }

    /// Whether there are no preparations to wait for.
    pub fn is_planned(&self) -> bool {
        match self {
            Self::Late(late) => late.planning.as_ref().is_none_or(JoinHandle::is_finished),
            _ => true,
        }
    }
}

impl Late {
    /// The plan; made now if there is none or it failed, since the reason may have passed.
    ///
    /// # Errors
    /// Says why the library can't be put into the program.
    pub fn take(self, process: ProcessId) -> Result<Planned> {
        let planned = self.planning.and_then(|planning| planning.join().ok());
        match planned {
            Some(Ok(planned)) => Ok(planned),
            _ => Planned::of_a_child(process),
        }
    }
}

impl Planned {
    fn of_a_child(process: ProcessId) -> Result<Self> {
        Self::of(process, Calls::to_move(), Stay::ToTheEnd)
    }

    /// For `process` as it is at present. `calls` caches what its modules do.
    ///
    /// # Errors
    /// Says why the library can't be put into the program.
    pub fn of(process: ProcessId, mut calls: Calls, stay: Stay) -> Result<Self> {
        unless_sound(process, &mut calls)?;
        let plan = plan(process, &proc::mappings(process)?, stay, &mut calls)?;
        Ok(Self { plan, calls, stay })
    }

    /// Puts the library into the process. Gives the library's handle, the file that is shared with
    /// it, and what is known of the process's modules.
    ///
    /// # Errors
    /// Says why it could not be put in; the program is then as it was.
    pub fn put(mut self, process: ProcessId) -> Result<(Inside, ControlFile, Calls)> {
        unless_sound(process, &mut self.calls)?;
        let mappings = proc::mappings(process)?;
        let own = self.calls.own(&mappings);
        if !self.plan.is_for(&mappings) || own.is_ok_and(|own| own != self.plan.own()) {
            self.plan = plan(process, &mappings, self.stay, &mut self.calls)?;
        }
        let library = sunder_guests::remap_library();
        self.calls.lead(self.plan.own().to_vec());
        let (inside, file) = Inside::put(process, library, self.plan, &mappings)?;
        Ok((inside, file, self.calls))
    }
}

fn plan(process: ProcessId, mappings: &Mappings, stay: Stay, calls: &mut Calls) -> Result<Plan> {
    let own = calls
        .own(mappings)
        .map_err(|why| anyhow!("nothing can be moved in it: {why}"))?;
    Plan::new(process, mappings, stay, own)
}
