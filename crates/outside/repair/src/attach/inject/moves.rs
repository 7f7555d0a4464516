//! Has the library in the program move the bytes of an area, or put them back, while all threads are
//! stopped.

use super::Inside;
use crate::attach::check::{Obstacle, Scene, owners};
use crate::attach::leave::ANOTHER;
use crate::attach::presence::{AT_WORK, CONFINED};
use crate::common::CommonMemory;
use crate::control::ControlFile;
use crate::soundness::{OTHER_CODE, has_its_code};
use std::sync::atomic::Ordering::Acquire;
use sunder_access::Mappings;
use sunder_hooking::Calls;
use sunder_observe::proc;
use sunder_stop::World;

/// The outcome of an attempt to move an area, or to put it back.
pub enum Applied {
    /// The library was called; the area's state says how it went.
    Done,
    /// Not at this moment, for this reason; a later attempt may succeed.
    NotNow(String),
    /// The bytes can't be moved at all, for this reason.
    Never(String),
}

impl Inside {
    /// Has the library move the bytes of an area, if nothing prevents it. Code that is new since
    /// `calls` checked it last is checked first. Copies of code were made of the mappings `then`.
    pub fn apply(
        &self,
        file: &ControlFile,
        number: usize,
        calls: &mut Calls,
        then: &Mappings,
    ) -> Applied {
        let area = &file.control().areas[number];
        let pages = (area.page.load(Acquire), area.len.load(Acquire));
        if let Ok(mappings) = proc::mappings(self.presence.process)
            && !calls.have_seen(&mappings)
            && let Err(why) = calls.all_seen(&mappings)
        {
            return Applied::Never(why);
        }
        // Looking at all processes takes time, so that most of it is done while threads run. A child that
        // has the memory may soon end, or execute another program.
        let mut common = match CommonMemory::at(self.presence.process, pages) {
            Ok(common) => common,
            Err(why) => return Applied::NotNow(why),
        };
        if self.presence.is_confined(false) {
            return Applied::Never(CONFINED.into());
        }
        let mut world = match World::stop(self.presence.process) {
            Ok(world) => world,
            Err(error) => return Applied::NotNow(error.to_string()),
        };
        let Ok(mappings) = proc::mappings(self.presence.process) else {
            return Applied::NotNow("its mappings can't be read".into());
        };
        if let Err(why) = common.is_still_of_one_process(&mappings) {
            return Applied::NotNow(why);
        }
        if !calls.have_seen(&mappings) {
            return Applied::NotNow("it has just loaded code".into());
        }
        if !has_its_code(area, then, &mappings) {
            return Applied::Never(OTHER_CODE.into());
        }
        if !self.has_own_hooks() {
            let why = "a module that makes kernel calls of its own has been loaded anew";
            return Applied::Never(why.into());
        }
        let presence = &self.presence;
        let scene = Scene {
            memory: &presence.memory,
            mappings: &mappings,
            plan: &self.plan,
            ours: &|ip| presence.ledger.has(ip),
            restorers: &presence.ledger.restorers,
            parked: &|thread| Some(presence.parked(file, thread)?.after.load(Acquire)),
        };
        let owners = match owners(&world, &scene, pages) {
            Ok(owners) => owners,
            Err(Obstacle::Passing(why)) => return Applied::NotNow(why.into()),
            Err(Obstacle::Lasting(why)) => return Applied::Never(why.into()),
        };
        if self.presence.is_on_its_way(file) {
            return Applied::NotNow("other bytes are on their way".into());
        }
        if !file.is_ours() {
            return Applied::Never(ANOTHER.into());
        }
        // If the pages do not move after all, or we are killed now, the threads wait there as well.
        let place = (self.layout.slots, self.table.parked);
        if let Err(why) = presence.park(file, &mut world, &owners, &mappings, place) {
            return Applied::NotNow(why.into());
        }
        self.ask(file, &world, self.table.apply, number as u64)
    }

    /// Whether all modules that may be unloaded still have their hooks: one may have been unloaded
    /// and loaded anew.
    fn has_own_hooks(&self) -> bool {
        let of_its_own = self.plan.own_patches().count();
        let hooks = &self.presence.ledger.hooks;
        let mut own = hooks.iter().skip(self.plan.count() - of_its_own);
        own.all(|hook| self.presence.has_hook(hook).is_ok_and(|has| has))
    }

    /// Has the library put the bytes of an area back, unless bytes are being moved already.
    pub fn roll_back(&self, file: &ControlFile, number: usize) -> Applied {
        match World::stop(self.presence.process) {
            Ok(_) if self.presence.is_on_its_way(file) => {
                Applied::NotNow("bytes are on their way".into())
            }
            Ok(world) => self.ask(file, &world, self.table.roll_back, number as u64),
            Err(error) => Applied::NotNow(error.to_string()),
        }
    }

    fn ask(&self, file: &ControlFile, world: &World, function: u64, argument: u64) -> Applied {
        let presence = &self.presence;
        if !file.is_ours() {
            return Applied::Never(ANOTHER.into());
        }
        if presence.is_at_work(file, world) {
            return Applied::NotNow(AT_WORK.into());
        }
        let Some(worker) = presence.worker(world) else {
            return Applied::Never(CONFINED.into());
        };
        let asked = presence
            .borrow(worker)
            .and_then(|worker| presence.library(&worker, function, argument));
        match asked {
            Ok(_) => Applied::Done,
            Err(error) => Applied::NotNow(error.to_string()),
        }
    }
}
