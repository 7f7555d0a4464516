//! Takes everything of ours out of a program, or nothing. Bytes at their new places without hooks
//! would be missed by kernel calls, and code must not be changed while threads run, which could
//! execute half of a change. What stays works without us, as it does when we are killed. Called by
//! `repairer`, `attach` and `remnant`.

use super::presence::{AT_WORK, CONFINED, Presence};
use super::refuse::is_stopped;
use crate::control::ControlFile;
use crate::request::{self, Executes};
use anyhow::{Context, Result, ensure};
use std::sync::atomic::Ordering::Acquire;
use std::time::{Duration, Instant};
use sunder_stop::{StopError, World};
use sunder_wire::remap::{
    ACTIVE, APPLYING, AREA_BYTES, Area, CACHE, FREE, REFUSED, ROLL_BACK, Resume, SCRATCH,
    SCRATCH_POOL, TOTAL, WITHDRAWN,
};

/// How long we try to find a moment at which no thread is in the way.
pub const PATIENCE: Duration = Duration::from_secs(2);
/// The same where a signal has stopped the program: none of its threads gets out of the way.
const PATIENCE_WITH_SUSPENDED: Duration = Duration::from_millis(100);
/// Pause before the threads are stopped again.
pub const PAUSE: Duration = Duration::from_millis(3);
/// Why nothing is done to a program that another Sunder has taken our library out of.
pub const ANOTHER: &str = "another Sunder has taken it over";

/// What is left of us in a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// The program has ended or the process executes another one.
    Gone,
    /// The library with its hooks and handlers stays, for this reason.
    Memory(String),
}

impl Presence {
    /// Takes everything out; tries again for up to `PATIENCE`. A program that a signal has stopped stays stopped.
    pub fn take_out(&self, file: &ControlFile) -> Left {
        // If this fails it executes something else by now.
        let _ = self.set(file, &file.control().ready, WITHDRAWN);
        let begun = Instant::now();
        let mut why = String::from("its threads can't be stopped");
        let mut patience = PATIENCE;
        while begun.elapsed() < patience {
            match request::executes(self.process) {
                Executes::Program => {}
                Executes::Another | Executes::Nothing => return Left::Gone,
                Executes::Unknown => {
                    why = "its mappings can't be read".into();
                    std::thread::sleep(PAUSE);
                    continue;
                }
            }
            if self.is_confined(true) {
                why = CONFINED.into();
                break;
            }
            let world = World::stop_suspended(self.process);
            patience = match &world {
                Ok(world) if world.is_suspended() => PATIENCE_WITH_SUSPENDED,
                _ => PATIENCE,
            };
            match world {
                Ok(world) if self.worker(&world).is_none() => {
                    why = CONFINED.into();
                    break;
                }
                Ok(mut world) => match self.leave(&mut world, file) {
                    Ok(()) => return Left::Nothing,
                    Err(error) => why = error.to_string(),
                },
                Err(StopError::Ended) => return Left::Gone,
                Err(error) => why = error.to_string(),
            }
            std::thread::sleep(PAUSE);
        }
        if is_stopped(self.process) {
            why = "it is stopped".into();
        }
        // From now on a thread that faults on moved bytes puts them back without asking us.
        for area in &file.control().areas {
            if matches!(area.state.load(Acquire), APPLYING | ACTIVE) {
                let _ = self.set(file, &area.wanted, ROLL_BACK);
            }
        }
        Left::Memory(why)
    }

    /// Takes everything out while all threads are stopped.
    fn leave(&self, world: &mut World, file: &ControlFile) -> Result<()> {
        ensure!(self.is_copied || file.is_ours(), ANOTHER);
        ensure!(!self.is_at_work(file, world), AT_WORK);
        self.refresh(file)?;
        ensure!(!self.is_on_its_way(file), "bytes are on their way back");
        let worker = self.worker(world).context(CONFINED)?;
        let worker = self.borrow(worker)?;
        for (number, area) in file.control().areas.iter().enumerate() {
            if area.state.load(Acquire) == ACTIVE {
                self.library(&worker, self.ledger.roll_back, number as u64)?;
                self.refresh(file)?;
                ensure!(area.state.load(Acquire) != ACTIVE, "bytes do not go back");
            }
        }
        drop(worker);
        let used = || {
            let areas = file.control().areas.iter();
            areas.filter(|a| !matches!(a.state.load(Acquire), FREE | REFUSED))
        };
        // Threads in copies of code go on at the same instruction of the original.
        let mut places = self
            .stands(world)
            .context("a thread's stack can't be read")?;
        for thread in world.threads() {
            if let Some(record) = self.parked(file, thread) {
                let ip = thread.registers().rip;
                let after = record.after.load(Acquire);
                places
                    .iter_mut()
                    .filter(|p| **p == ip)
                    .take(1)
                    .for_each(|p| *p = after);
            }
        }
        ensure!(
            self.unpark(file, world, |_| true) == 0,
            "a thread of it can't be let back to its stack"
        );
        for thread in world.threads_mut() {
            let ip = thread.registers().rip;
            if let Some(place) = used().find_map(|a| place_of(a, ip)) {
                let original = place.original.load(Acquire);
                let top = self.memory.words(thread.registers().rsp, 1);
                let top = top.context("a thread's stack can't be read")?[0];
                self.move_to(thread, original, |general| place.restore(general, |_| top))?;
                if let Some(place) = places.iter_mut().find(|p| **p == ip) {
                    *place = original;
                }
            }
        }
        let within = |ip: u64, at: u64, bytes: u64| ip.wrapping_sub(at) < bytes;
        let stays = places.iter().any(|&ip| {
            self.ledger.has(ip)
                || self.is_inside_a_hook(ip)
                || used().any(|a| within(ip, a.code.load(Acquire), CACHE))
        });
        ensure!(!stays, "a thread of it stays in code of ours");
        // Until this is known, nothing is changed.
        let hooks = self.hooks_there()?;
        let worker = self.lend(world)?;
        if self.ledger.end != 0 {
            self.library(&worker, self.ledger.end, 0)?;
        }
        // What stays works, and is tried again.
        self.restore(&hooks)?;
        for area in used() {
            let at = area.at.load(Acquire);
            // If we are killed from here on, this memory stays: another Sunder must not unmap what
            // the program maps there meanwhile.
            self.set(file, &area.state, FREE)?;
            for (from, to) in reserved(area) {
                self.unmap(&worker, at + from, to - from);
            }
            self.unmap(&worker, area.code.load(Acquire), CACHE);
        }
        self.unmap(&worker, self.ledger.control, TOTAL as u64);
        for &(at, end) in &self.ledger.parts {
            self.unmap(&worker, at, end.saturating_sub(at));
        }
        ensure!(!worker.is_lost(), AT_WORK);
        drop(worker);
        self.close(world);
        Ok(())
    }
}

/// Which instruction of an area's copies of code is at `ip`.
fn place_of(area: &Area, ip: u64) -> Option<&Resume> {
    let offset = ip.wrapping_sub(area.code.load(Acquire));
    let count = area.resume_count.load(Acquire) as usize;
    let all = area.resumes.get(..count)?;
    let is_there = |r: &&Resume| u64::from(r.offset.load(Acquire)) == offset;
    all.iter().find(is_there).filter(|_| offset < CACHE)
}

/// The parts of an area's data, as offsets, that hold nothing but our data.
fn reserved(area: &Area) -> Vec<(u64, u64)> {
    if area.spoilt.load(Acquire) == 0 {
        return vec![(0, AREA_BYTES)];
    }
    // The kernel may have put memory of the program there when bytes went back.
    vec![(0, SCRATCH), (SCRATCH_POOL, AREA_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use sunder_wire::remap::Control;

    /// Memory of the program that came to lie where pages are put together must not be unmapped.
    #[test]
    fn memory_of_the_programs_own_in_an_area_stays() {
        // SAFETY: `Control` consists of atomic integers, for which zeroes are valid.
        let control: Box<Control> = unsafe { Box::new_zeroed().assume_init() };
        let area = &control.areas[0];
        let has = |at: u64| {
            reserved(area)
                .iter()
                .any(|&(from, to)| from <= at && at < to)
        };
        assert!(
            [0, SCRATCH, SCRATCH_POOL, AREA_BYTES - 1]
                .into_iter()
                .all(has)
        );
        area.spoilt.store(1, Relaxed);
        assert!(
            [0, SCRATCH - 1, SCRATCH_POOL, AREA_BYTES - 1]
                .into_iter()
                .all(has)
        );
        assert!(![SCRATCH, SCRATCH_POOL - 1, AREA_BYTES].into_iter().any(has));
    }
}
