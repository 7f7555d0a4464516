//! The hooks in the program's C library through which changes of its address space are seen. They
//! are planned on a thread of ours as soon as false sharing is suspected, and the library inside
//! puts them in place when memory is made sharable for the first time. A program in which no thread
//! is isolated has no hooks. Called by the keeper.

use super::shared::Shared;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use sunder_access::ProcessId;
use sunder_hooking::Plan;
use sunder_observe::proc;
use sunder_rewrite::sites::Want;
use sunder_stop::{Memory, Stopped, stands};

/// The plan of the hooks, and how far it has come; see the head of this file.
#[derive(Debug, Default)]
pub struct Hooks {
    /// The thread that makes the plan, until it is collected.
    planning: Option<JoinHandle<anyhow::Result<Plan>>>,
    plan: Option<Plan>,
}

/// Whether the hooks can be put in place.
#[derive(Debug, PartialEq, Eq)]
pub enum Readiness {
    /// They are in place, or can be put there now.
    Now,
    /// Not at this moment; a later attempt may succeed.
    NotNow,
    /// Says why they never can.
    Never(String),
}

impl Hooks {
    /// Starts making the plan, unless that was done before.
    pub fn plan(&mut self) {
        if self.planning.is_none() && self.plan.is_none() {
            let thread = std::thread::Builder::new().name("hooks".into());
            // If no thread can be started, the next call tries again.
            self.planning = thread.spawn(|| Plan::new(Want::Nothing)).ok();
        }
    }

    /// Whether there is a plan; starts making one if not. To be called before threads are stopped.
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

    /// Gives the plan to the library, unless the hooks are in place or a thread stands in code that
    /// would be overwritten. All threads must be stopped.
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

/// The same words as in [`super::report::closed_because`], for the same reason when it is found here.
const OTHER: &str = "its C library's kernel calls can't be led through hooks";
