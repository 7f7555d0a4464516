//! How much a kept run may have of what takes memory beyond its own bytes. A step of a few bytes can
//! make a process, or copy all mappings of one.

use std::collections::HashMap;
use sunder_recording::{Error, Step};

/// The most images with records of a heap: each takes 11 GB of address space.
pub const MOST_SEGMENTS: usize = 1024;

/// The most processes. A machine has 32,768 at a time, unless it is told otherwise.
const MOST_PROCESSES: usize = 1 << 16;

/// The most mappings that processes take over from those that started them.
const MOST_INHERITED: usize = 4 << 20;

/// The error for a recording in which this is wrong.
pub fn damaged(what: &str) -> anyhow::Error {
    Error::Damaged(what.into()).into()
}

/// What a recording has taken so far.
#[derive(Debug, Default)]
pub struct Bounds {
    /// The mappings of each process, at most.
    mappings: HashMap<u32, usize>,
    inherited: usize,
}

impl Bounds {
    /// Counts a step.
    ///
    /// # Errors
    /// If that is too much.
    pub fn take(&mut self, step: &Step) -> anyhow::Result<()> {
        match step {
            Step::Sample(sample) => self.process(sample.process, 0),
            Step::Map { process, .. } => self.process(*process, 1),
            Step::Mappings { process, mappings } => self.process(*process, mappings.len()),
            Step::ThreadStart {
                process, parent, ..
            } if process != parent => {
                let more = self.mappings.get(parent).copied().unwrap_or_default();
                self.inherited += more;
                self.process(*process, more);
            }
            Step::Claim(claim) => {
                let all = self.mappings.values().max().copied().unwrap_or_default();
                self.inherited += if claim.forked.is_some() { all } else { 0 };
                self.process(claim.process, all);
            }
            Step::Access { process, .. }
            | Step::ThreadName { process, .. }
            | Step::ThreadStart { process, .. }
            | Step::Thread { process, .. }
            | Step::Owners { process, .. }
            | Step::Lives(process)
            | Step::Anew(process) => self.process(*process, 0),
            Step::ThreadLocals(read) => self.process(read.process, 0),
            Step::Watched(burst) => self.process(burst.process, 0),
            Step::Executed(executed) => self.process(executed.process, 0),
            _ => {}
        }
        if self.mappings.len() > MOST_PROCESSES || self.inherited > MOST_INHERITED {
            return Err(damaged(
                "it has more processes, or mappings, than can be kept",
            ));
        }
        Ok(())
    }

    fn process(&mut self, process: u32, mappings: usize) {
        *self.mappings.entry(process).or_default() += mappings;
    }
}
