//! Takes everything out of a program again, or nothing: bytes that are away without hooks
//! would be missed by the kernel, and code that is changed while threads run could be executed
//! in half. What stays works by itself, as when we are killed. Called by `attach`.

use super::super::refuse::is_stopped;
use super::{AT_WORK, CONFINED, Inside, PATIENCE, PAUSE, is_on_its_way};
use crate::control::ControlFile;
use anyhow::{Context, Result, ensure};
use std::sync::atomic::Ordering::{Acquire, Release};
use std::time::Instant;
use sunder_stop::{StopError, World};
use sunder_wire::remap::{
    ACTIVE, APPLYING, AREA_BYTES, Area, CACHE, FREE, REFUSED, ROLL_BACK, SCRATCH, SCRATCH_POOL,
    TOTAL, WITHDRAWN,
};

/// What is left in a program.
#[derive(Debug, PartialEq, Eq)]
pub enum Left {
    /// Nothing.
    Nothing,
    /// The program has ended, or has become another.
    Gone,
    /// The library with its hooks and handlers, for this reason.
    Memory(String),
}

impl Inside {
    /// Takes everything out again.
    pub fn take_out(self, file: &ControlFile) -> Left {
        file.control().ready.store(WITHDRAWN, Release);
        let begun = Instant::now();
        let mut why = String::from("its threads can't be stopped");
        while begun.elapsed() < PATIENCE {
            if !self.is_there() {
                return Left::Gone;
            }
            match World::stop(self.process) {
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
        // Whoever reaches for bytes that are away puts them back, and need not ask first.
        for area in &file.control().areas {
            if matches!(area.state.load(Acquire), APPLYING | ACTIVE) {
                area.wanted.store(ROLL_BACK, Release);
            }
        }
        Left::Memory(why)
    }

    /// With all threads stopped.
    fn leave(&self, world: &mut World, file: &ControlFile) -> Result<()> {
        ensure!(!self.is_at_work(world), AT_WORK);
        ensure!(!is_on_its_way(file), "bytes are on their way back");
        let worker = self.worker(world).context(CONFINED)?;
        let worker = self.borrow(worker)?;
        for (number, area) in file.control().areas.iter().enumerate() {
            if area.state.load(Acquire) == ACTIVE {
                self.library(&worker, self.table.roll_back, number as u64)?;
                ensure!(area.state.load(Acquire) != ACTIVE, "bytes do not go back");
            }
        }
        drop(worker);
        let used = || {
            let areas = file.control().areas.iter();
            areas.filter(|a| !matches!(a.state.load(Acquire), FREE | REFUSED))
        };
        // Out of copies of code, to the same instruction of the original.
        let mut places = self
            .stands(world)
            .context("a thread's stack can't be read")?;
        for thread in world.threads_mut() {
            let ip = thread.registers().rip;
            if let Some(original) = used().find_map(|a| original_of(a, ip)) {
                thread.move_to(original)?;
                if let Some(place) = places.iter_mut().find(|p| **p == ip) {
                    *place = original;
                }
            }
        }
        let within = |ip: u64, at: u64, bytes: u64| ip.wrapping_sub(at) < bytes;
        let stays = places.iter().any(|&ip| {
            self.layout.has(ip)
                || self.plan.is_inside(ip)
                || used().any(|a| within(ip, a.code.load(Acquire), CACHE))
        });
        ensure!(!stays, "a thread of it stays in code of ours");
        let worker = self.lend(world)?;
        self.library(&worker, self.table.end, 0)?;
        self.restore();
        for area in used() {
            let at = area.at.load(Acquire);
            for (from, to) in reserved(area) {
                self.unmap(&worker, at + from, to - from);
            }
            self.unmap(&worker, area.code.load(Acquire), CACHE);
        }
        self.unmap(&worker, self.control.get(), TOTAL as u64);
        for (at, end) in self.code() {
            self.unmap(&worker, at, end - at);
        }
        ensure!(!worker.is_lost(), AT_WORK);
        drop(worker);
        self.close(world);
        Ok(())
    }
}

/// The original of an instruction in the area's copies.
fn original_of(area: &Area, ip: u64) -> Option<u64> {
    let offset = ip.wrapping_sub(area.code.load(Acquire));
    let count = area.resume_count.load(Acquire) as usize;
    let all = area.resumes.get(..count)?;
    let found = all.iter().find(|r| r.offset.load(Acquire) == offset)?;
    (offset < CACHE).then(|| found.original.load(Acquire))
}

/// The parts of an area's data in which nothing lies but what is ours.
fn reserved(area: &Area) -> Vec<(u64, u64)> {
    if area.spoilt.load(Acquire) == 0 {
        return vec![(0, AREA_BYTES)];
    }
    // Memory of the program's own may have come to lie there as bytes went back.
    vec![(0, SCRATCH), (SCRATCH_POOL, AREA_BYTES)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;
    use sunder_wire::remap::Control;

    /// What came to lie where pages are put together, as they went back, is not taken away.
    #[test]
    fn memory_of_the_programs_own_in_an_area_stays() {
        // SAFETY: any bytes are atomic words, so zeroes are.
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
