//! Many replays of one trace: it is read once for as many as memory holds side by
//! side, and each piece of it goes to all of them, on all processors.

use crate::simulate::layout::Layout;
use crate::simulate::machine::Machine;
use crate::simulate::relocate::Figures;
use crate::simulate::replay::{BySubject, Misses, Replay, Replayed};
use crate::simulate::steps::each_of;
use anyhow::Result;
use rayon::prelude::*;
use sunder_coherence::{Config, Counts};
use sunder_placement::Stats;
use sunder_trace::read::Trace;

/// A replay that is wanted.
pub struct Wanted {
    /// The machine.
    pub config: Config,
    /// Where objects lie.
    pub layout: Layout,
}

/// What it counted.
pub struct Counted {
    /// Of the machine.
    pub totals: Counts,
    /// Of each subject, by its number.
    pub misses: Vec<Misses>,
    /// What the placement of the heap took, and the changed objects.
    pub placed: Option<(Stats, Figures)>,
}

impl Counted {
    fn of(replayed: Replayed<BySubject>) -> Self {
        Self {
            totals: replayed.outcome.totals(),
            placed: replayed.placed,
            misses: replayed.outcome.into_observer().misses,
        }
    }

    /// The misses of a subject.
    pub fn of_subject(&self, subject: u16) -> Misses {
        let known = self.misses.get(usize::from(subject));
        known.copied().unwrap_or_default()
    }
}

/// Makes all `wanted` replays, as many at a time as there is memory for if each
/// touches about `granules`; in their order.
///
/// # Errors
/// If one of the machines can't be.
pub fn replay_all(
    trace: &Trace,
    machine: &Machine,
    wanted: &[Wanted],
    granules: usize,
) -> Result<Vec<Counted>> {
    let mut all = Vec::new();
    for group in wanted.chunks(at_once(granules, machine.config.nodes, available())) {
        let mut replays = Vec::new();
        for Wanted { config, layout } in group {
            replays.push(Replay::new(machine, *config, layout, BySubject::default())?);
        }
        each_of(trace, machine, true, |steps| {
            replays.par_iter_mut().try_for_each(|r| r.feed(steps))
        })?;
        all.par_extend(replays.into_par_iter().map(|r| Counted::of(r.finish())));
    }
    Ok(all)
}

/// Bytes that a replay takes for a granule, as measured for lines that a few nodes
/// share, rounded up; pages with a history take more, but there are few.
const A_GRANULE: u64 = 256;

/// Bytes that a replay takes for a node and for its blocks.
const A_NODE: u64 = 1 << 19;
const BLOCKS: u64 = 4 << 20;

/// How many replays fit into half of the `available` bytes.
fn at_once(granules: usize, nodes: u32, available: u64) -> usize {
    let each = granules as u64 * A_GRANULE + u64::from(nodes) * A_NODE + BLOCKS;
    (available / 2 / each).clamp(1, MOST) as usize
}

/// More than this side by side is not faster: what they look up leaves the caches.
const MOST: u64 = 16;

/// Bytes of memory that the system would give; a cautious guess where it does not
/// say.
fn available() -> u64 {
    let told = std::fs::read_to_string("/proc/meminfo").ok();
    told.as_deref().and_then(parse_available).unwrap_or(1 << 30)
}

/// The `MemAvailable` of `/proc/meminfo`, in bytes.
fn parse_available(text: &str) -> Option<u64> {
    let line = text.lines().find_map(|l| l.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1 << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_what_runs_at_once() {
        assert_eq!(at_once(100, 3, 8 << 30), 16);
        // A million granules of 256 bytes and two replays in half of a gibibyte.
        assert_eq!(at_once(1 << 20, 2, 1 << 30), 1);
        assert_eq!(at_once(1 << 20, 2, 2 << 30), 3);
        assert_eq!(at_once(1 << 30, 2, 0), 1);
    }

    #[test]
    fn available_memory_is_read() {
        let text = "MemTotal:  8000 kB\nMemFree: 10 kB\nMemAvailable:    5000 kB\n";
        assert_eq!(parse_available(text), Some(5000 << 10));
        assert_eq!(parse_available("MemAvailable: many"), None);
    }
}
