//! Keeps a replay within its memory. What a replay takes depends on how many granules, objects and
//! waiting threads the events of a trace name, and a few bytes of a trace may stand for a great many
//! events. So the trace's guard looks at the memory of this process before each block. Called by
//! all that replays; it knows no machine.

use anyhow::{Result, bail};
use std::path::Path;
use sunder_observe::proc::{memory_left, own_address_space, own_memory};
use sunder_trace::read::Trace;

/// Taken if the system does not say how much memory it has left.
const CAUTIOUS: u64 = 1 << 30;

/// Opens the trace that is to be replayed, and keeps the memory of all its readings in bounds: `most`
/// bytes, or half of what the machine has left.
///
/// # Errors
/// If it can't be read.
pub fn open(file: &Path, most: Option<u64>) -> Result<Trace> {
    let mut trace = Trace::open(file)?;
    let bound = Bound::new(file, most);
    trace.set_guard(Box::new(move || bound.exceeded()));
    Ok(trace)
}

/// The bound of the memory that this process may take from now on.
pub struct Bound {
    path: String,
    /// What it had before: resident and reserved.
    before: (u64, u64),
    most: u64,
    space: u64,
}

impl Bound {
    /// For the replay of `file`: `most` bytes, or half of what the machine has left.
    pub fn new(file: &Path, most: Option<u64>) -> Self {
        let half = || memory_left().map_or(CAUTIOUS, |left| left / 2);
        let most = most.unwrap_or_else(half);
        let before = own_memory().map_or((0, 0), |own| (own.resident, own.reserved));
        // A table that grows takes twice as much as before, and if that is refused, this process
        // aborts.
        let space = own_address_space().map_or(u64::MAX, |most| most.saturating_sub(before.1) / 2);
        Self {
            path: file.display().to_string(),
            before,
            most: most.min(space),
            space,
        }
    }

    /// What to say if the bound is exceeded.
    pub fn exceeded(&self) -> Option<String> {
        let own = own_memory()?;
        let taken = own.resident.saturating_sub(self.before.0);
        if taken <= self.most && own.reserved.saturating_sub(self.before.1) <= self.space {
            return None;
        }
        Some(format!(
            "replaying {} takes more memory than there is: {} MiB so far, and {} MiB is the \
             most; choose larger granules, or heap objects alone (--heap-only), or use a machine \
             with more memory",
            self.path,
            taken >> 20,
            self.most >> 20
        ))
    }
}

/// Refuses the result of readings that the memory's end has cut off.
///
/// # Errors
/// If there were any.
pub fn check(trace: &Trace) -> Result<()> {
    match trace.stopped() {
        Some(why) => bail!("{why}"),
        None => Ok(()),
    }
}
