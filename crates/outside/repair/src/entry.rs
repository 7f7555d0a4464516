//! How the library comes into a program that we start: not before there is something to
//! move, so that nothing is done to a program whose threads share nothing falsely. A
//! thread of ours makes the plan for the hooks while it is measured how threads get on
//! that share something; all is put into the program, with its threads stopped, when it
//! is to be used. Where the kernel does not let us stop threads, the library is loaded at
//! the beginning instead.

use super::attach::{Inside, Plan, Stay, unless_sound};
use super::control::ControlFile;
use anyhow::{Context, Result, anyhow};
use std::thread::{Builder, JoinHandle};
use sunder_access::{Mappings, ProcessId};
use sunder_guests::MemoryFile;
use sunder_hooking::Calls;
use sunder_observe::proc;
use sunder_stop::may_trace;

/// Where the library stands.
pub enum Entry {
    /// It comes when there is something to move.
    Late(Late),
    /// The program loads it at its beginning, from this file.
    Preloaded(MemoryFile),
    /// We have put it into the program.
    Inside(Box<Inside>),
    /// It does not come, or has gone.
    Never,
}

/// What is being made ready for when it comes; nothing at first.
#[derive(Default)]
pub struct Late {
    planning: Option<JoinHandle<Result<Planned>>>,
}

/// What it takes to put the library into a program.
pub struct Planned {
    plan: Plan,
    calls: Calls,
    stay: Stay,
}

impl Entry {
    /// Into a program that we are about to start.
    ///
    /// # Errors
    /// If the kernel gives no memory.
    pub fn of_a_child() -> Result<Self> {
        if may_trace() {
            return Ok(Self::Late(Late::default()));
        }
        let library = MemoryFile::remap().context("cannot make the library available")?;
        Ok(Self::Preloaded(library))
    }

    /// Something is about to be moved: what takes long is begun, unless it has been.
    pub fn plan(&mut self, process: ProcessId) {
        if let Self::Late(late) = self
            && late.planning.is_none()
        {
            let made = move || Planned::of_a_child(process);
            // Without a thread it is done later.
            late.planning = Builder::new().name("sunder-plan".into()).spawn(made).ok();
        }
    }

    /// Whether nothing has to be waited for.
    pub fn is_planned(&self) -> bool {
        match self {
            Self::Late(late) => late.planning.as_ref().is_none_or(JoinHandle::is_finished),
            _ => true,
        }
    }
}

impl Late {
    /// What was planned, or is now: what spoke against it may have passed.
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

    /// For `process` as it is now; `calls` remembers what was seen of its modules.
    ///
    /// # Errors
    /// Says why the library can't be put into the program.
    pub fn of(process: ProcessId, mut calls: Calls, stay: Stay) -> Result<Self> {
        unless_sound(process, &mut calls)?;
        let plan = plan(process, &proc::mappings(process)?, stay, &mut calls)?;
        Ok(Self { plan, calls, stay })
    }

    /// Puts the library into the process: there, the file that is shared with it, and what
    /// is known of its modules.
    ///
    /// # Errors
    /// Says why the program is as it was.
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
