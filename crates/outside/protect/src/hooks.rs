//! The hooks in the program's C library, which see changes of its address space: planned on
//! a thread of ours as soon as something is suspected, and put in place by the library
//! inside when memory is made sharable for the first time. A program in which nothing is
//! isolated has none. Called by the keeper, with all threads of the program stopped.

use super::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use sunder_access::ProcessId;
use sunder_hooking::Plan;
use sunder_observe::proc;
use sunder_rewrite::sites::Want;
use sunder_stop::{Memory, Stopped, stands};

/// See the module's head.
#[derive(Debug, Default)]
pub struct Hooks {
    /// While it is made.
    planning: Option<JoinHandle<anyhow::Result<Plan>>>,
    plan: Option<Plan>,
}

/// Whether the hooks can be put in place.
#[derive(Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are there, or can be.
    Now,
    /// Another moment will be better.
    NotNow,
    /// Says why they never can.
    Never(String),
}

impl Hooks {
    /// Begins to plan, unless that was done.
    pub fn plan(&mut self) {
        if self.planning.is_none() && self.plan.is_none() {
            let thread = std::thread::Builder::new().name("hooks".into());
            // If there can't be a thread, there is none at the next call either.
            self.planning = thread.spawn(|| Plan::new(Want::Nothing)).ok();
        }
    }

    /// Whether there is a plan; asks for one. To be called before anybody is stopped.
    pub fn planned(&mut self) -> Readiness {
        self.plan();
        if let Some(thread) = self.planning.take_if(|thread| thread.is_finished()) {
            match thread.join() {
                Ok(Ok(plan)) => self.plan = Some(plan),
                Ok(Err(error)) => return Readiness::Never(format!("{error:#}")),
                Err(_) => return Readiness::Never(OTHER.into()),
            }
        }
        if self.plan.is_some() {
            Readiness::Now
        } else {
            Readiness::NotNow
        }
    }

    /// All threads are stopped: gives the library inside the plan, unless it has been
    /// carried out or a thread stands in code that would be changed.
    pub fn give<'a>(
        &self,
        process: ProcessId,
        shared: &Shared,
        threads: impl IntoIterator<Item = &'a Stopped>,
    ) -> Readiness {
        if shared.hooks.iter().any(|area| area[0].load(Relaxed) != 0) {
            return Readiness::Now;
        }
        let (Some(plan), Ok(mappings)) = (&self.plan, proc::mappings(process)) else {
            return Readiness::NotNow;
        };
        let Some(placed) = plan.placed(&mappings) else {
            return Readiness::Never(OTHER.into());
        };
        let Ok(memory) = Memory::of(process) else {
            return Readiness::Never("its memory can't be read".into());
        };
        match stands(threads, &memory, &mappings, &placed.restorers()) {
            Some(places) if !places.iter().any(|ip| placed.is_inside(*ip)) => {}
            _ => return Readiness::NotNow,
        }
        match shared.give_plan(&plan.bytes()) {
            Ok(()) => Readiness::Now,
            Err(error) => Readiness::Never(format!("{error:#}")),
        }
    }
}

/// As [`super::closed_because`] says it of what the library finds.
const OTHER: &str = "its C library's kernel calls can't be led through hooks";
