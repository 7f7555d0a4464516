//! Keeps a replay within its memory. What a replay takes depends on how many granules, objects and
//! waiting threads the events of a trace name, and a few bytes of a trace may stand for a great many
//! events. So the trace's guard looks at the memory of this process before each block. Called by
//! all that replays; it knows no machine.

use crate::options::Simulate;
use anyhow::{Result, bail};
use sunder_observe::proc::{memory_left, own_address_space, own_memory};
use sunder_trace::read::Trace;

/// Taken if the system does not say how much memory it has left.
const CAUTIOUS: u64 = 1 << 30;

/// Opens the trace that is to be replayed, and keeps the memory of all its readings in bounds.
///
/// # Errors
/// If it can't be read.
pub fn open(options: &Simulate) -> Result<Trace> {
    let mut trace = Trace::open(&options.file)?;
    let half = || memory_left().map_or(CAUTIOUS, |left| left / 2);
    let most = options.memory.unwrap_or_else(half);
    let before = own_memory().map_or((0, 0), |own| (own.resident, own.reserved));
    // A table that grows takes twice as much as before, and if that is refused, this process aborts.
    let space = own_address_space().map_or(u64::MAX, |most| most.saturating_sub(before.1) / 2);
    let most = most.min(space);
    let path = options.file.display().to_string();
    trace.set_guard(Box::new(move || {
        let own = own_memory()?;
        let taken = own.resident.saturating_sub(before.0);
        if taken <= most && own.reserved.saturating_sub(before.1) <= space {
            return None;
        }
        Some(format!(
            "replaying {path} takes more memory than there is: {} MiB so far, and {} MiB is the \
             most; choose larger granules, or heap objects alone (--heap-only), or use a machine \
             with more memory",
            taken >> 20,
            most >> 20
        ))
    }));
    Ok(trace)
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
