//! How the library gets into a program that we start. It comes only when there is something to
//! move, so that a program without false sharing stays untouched. A thread of ours plans the hooks:
//! those of the C library as soon as a line is suspected, the others while the contending threads are
//! measured. When bytes are to be moved, all threads are stopped and the library is put
//! in. Where the kernel does not let us stop threads, the program loads the library at its start
//! instead. Called by `repairer` and `attach`.

use super::inject::Inside;
use super::module::Module;
use super::plan::{Plan, Stay, covered};
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
    /// Plans what is the same for every program, or has done so.
    foreseeing: Option<JoinHandle<Vec<Module>>>,
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

    /// A line is suspected, so that bytes may have to be moved soon: starts what takes longest of the
    /// preparations, if that was not started.
    pub fn foresee(&mut self, process: ProcessId) {
        if let Self::Late(late) = self
            && late.foreseeing.is_none()
            && late.planning.is_none()
        {
            let made = move || {
                let mappings = proc::mappings(process).unwrap_or_default();
                // Why there is no plan is found again when it is needed.
                covered(process, &mappings, Stay::ToTheEnd, Vec::new()).unwrap_or_default()
            };
            late.foreseeing = in_a_thread(made);
        }
    }

    /// Bytes are about to be moved: starts the other preparations, if they were not started.
    pub fn plan(&mut self, process: ProcessId) {
        if let Self::Late(late) = self
            && late.planning.is_none()
        {
            let foreseeing = late.foreseeing.take();
            let made = move || {
                let known = foreseeing.and_then(|foreseeing| foreseeing.join().ok());
                sunder_guests::remap_library();
                Planned::of_a_child(process, known.unwrap_or_default())
            };
            // If no thread can be started, `take` makes the plan.
            late.planning = in_a_thread(made);
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
            _ => Planned::of_a_child(process, Vec::new()),
        }
    }
}

fn in_a_thread<T: Send + 'static>(
    made: impl FnOnce() -> T + Send + 'static,
) -> Option<JoinHandle<T>> {
    Builder::new().name("sunder-plan".into()).spawn(made).ok()
}

impl Planned {
    fn of_a_child(process: ProcessId, known: Vec<Module>) -> Result<Self> {
        Self::of(process, Calls::to_move(), Stay::ToTheEnd, known)
    }

    /// For `process` as it is at present. `calls` caches what its modules do; `known` are modules
    /// that were planned for earlier.
    ///
    /// # Errors
    /// Says why the library can't be put into the program.
    pub fn of(
        process: ProcessId,
        mut calls: Calls,
        stay: Stay,
        known: Vec<Module>,
    ) -> Result<Self> {
        unless_sound(process, &mut calls)?;
        let plan = plan(process, &proc::mappings(process)?, stay, &mut calls, known)?;
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
            let known = std::mem::take(&mut self.plan.modules);
            self.plan = plan(process, &mappings, self.stay, &mut self.calls, known)?;
        }
        let library = sunder_guests::remap_library();
        self.calls.lead(self.plan.own().to_vec());
        let (inside, file) = Inside::put(process, library, self.plan, &mappings)?;
        Ok((inside, file, self.calls))
    }
}

fn plan(
    process: ProcessId,
    mappings: &Mappings,
    stay: Stay,
    calls: &mut Calls,
    known: Vec<Module>,
) -> Result<Plan> {
    let own = calls
        .own(mappings)
        .map_err(|why| anyhow!("nothing can be moved in it: {why}"))?;
    Plan::new(process, mappings, stay, own, known)
}
