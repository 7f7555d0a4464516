//! Many replays of one trace. The trace is read once for as many replays as fit into memory;
//! each chunk goes to all of them, on all processors.

use crate::memory;
use crate::simulate::layout::Layout;
use crate::simulate::machine::Machine;
use crate::simulate::region::Region;
use crate::simulate::relocate::Figures;
use crate::simulate::replay::{BySubject, Misses, Replay, Replayed};
use crate::simulate::steps::each_of;
use anyhow::Result;
use rayon::prelude::*;
use std::collections::HashSet;
use sunder_access::Span;
use sunder_coherence::Config;
use sunder_placement::Stats;
use sunder_trace::read::{Filter, Kinds, Trace, What};

/// A replay to make.
pub struct Wanted {
    /// The simulator's configuration.
    pub config: Config,
    /// The layout of the objects.
    pub layout: Layout,
}

/// The results of a replay.
#[derive(Clone, Debug)]
pub struct Counted {
    /// Misses of the whole machine.
    pub totals: Misses,
    /// Misses of each subject, by its number.
    pub misses: Vec<Misses>,
    /// The statistics of the placement, and the figures of changed objects, if objects were
    /// moved.
    pub placed: Option<(Stats, Figures)>,
}

impl Counted {
    fn of(replayed: Replayed<BySubject>) -> Self {
        Self {
            totals: replayed.outcome.totals().into(),
            placed: replayed.placed,
            misses: replayed.outcome.into_observer().misses,
        }
    }

    /// The misses of one subject.
    pub fn of_subject(&self, subject: u16) -> Misses {
        let known = self.misses.get(usize::from(subject));
        known.copied().unwrap_or_default()
    }
}

/// The replay to which the others are compared: all objects stay where they were.
#[derive(Clone, Copy, Debug)]
pub struct Base {
    /// Its misses.
    pub misses: Misses,
    /// The granules that it touched.
    pub granules: usize,
}

/// Makes all `wanted` replays and returns their results in the same order. As many run at a
/// time as memory allows. Each is confined to the lines of the objects that its layout moves or
/// counts; on all other lines the misses are those of `base`.
///
/// # Errors
/// If one of the machines can't be.
pub fn replay_all(
    trace: &Trace,
    machine: &Machine,
    wanted: &[Wanted],
    base: Base,
) -> Result<Vec<Counted>> {
    // Policies move the whole heap, other changes move few objects.
    let (policies, others): (Vec<usize>, Vec<usize>) =
        (0..wanted.len()).partition(|&i| wanted[i].layout.policy.is_some());
    let mut all: Vec<Option<Counted>> = vec![None; wanted.len()];
    for group in [policies, others] {
        let members: Vec<&Wanted> = group.iter().map(|&i| &wanted[i]).collect();
        let counted = replay_group(trace, machine, &members, base)?;
        for (place, counted) in group.into_iter().zip(counted) {
            all[place] = Some(counted);
        }
    }
    Ok(all.into_iter().flatten().collect())
}

/// As [`replay_all`], for replays that are confined to the same lines.
fn replay_group(
    trace: &Trace,
    machine: &Machine,
    wanted: &[&Wanted],
    base: Base,
) -> Result<Vec<Counted>> {
    if wanted.is_empty() {
        return Ok(Vec::new());
    }
    let region = concerned(trace, wanted, machine.config.granule);
    memory::check(trace)?;
    let watch = region.watch();
    let each = region.unit() / machine.config.granule.min(region.unit());
    let granules = (base.granules as u64).min(region.units().saturating_mul(each));
    // The misses on these lines when all objects stay where they were.
    let still = Wanted {
        config: machine.config,
        layout: Layout::default(),
    };
    let mut members = vec![&still];
    members.extend(wanted);
    let mut all = Vec::new();
    for group in members.chunks(at_once(granules, machine.config.nodes, available())) {
        let mut replays = Vec::new();
        for Wanted { config, layout } in group {
            let replay = Replay::confined(machine, *config, layout, BySubject::default(), &region)?;
            replays.push(replay);
        }
        each_of(trace, machine, true, watch.as_ref(), |steps| {
            replays.par_iter_mut().try_for_each(|r| r.feed(steps))
        })?;
        memory::check(trace)?;
        all.par_extend(replays.into_par_iter().map(|r| Counted::of(r.finish())));
    }
    let still = all.remove(0).totals;
    for counted in &mut all {
        counted.totals = elsewhere(base.misses, still, counted.totals);
    }
    Ok(all)
}

/// The misses of a machine on which `still` of all misses are replaced by `now`.
const fn elsewhere(all: Misses, still: Misses, now: Misses) -> Misses {
    Misses {
        cold: (all.cold - still.cold) + now.cold,
        replacement: (all.replacement - still.replacement) + now.replacement,
        truly: (all.truly - still.truly) + now.truly,
        falsely: (all.falsely - still.falsely) + now.falsely,
    }
}

/// An access that begins in an object belongs to it, and may end this many bytes after it.
const BEYOND: u64 = 63;

/// The memory that any of the layouts moves or counts.
fn concerned(trace: &Trace, wanted: &[&Wanted], granule: u64) -> Region {
    let largest = wanted.iter().map(|w| w.config.granule).max();
    let mut region = Region::new(largest.unwrap_or(granule).max(granule));
    let mut keys: HashSet<(u32, u64)> = HashSet::new();
    let mut whole_heap = false;
    for Wanted { layout, .. } in wanted {
        whole_heap |= layout.policy.is_some();
        keys.extend(layout.blocks.keys());
        keys.extend(layout.subjects.keys());
        let moved = layout.statics.iter().map(|(span, _)| *span);
        let counted = layout.static_subjects.iter().map(|(span, _)| *span);
        for span in moved.chain(counted) {
            region.add(Span::new(span.start, span.len.saturating_add(BEYOND)));
        }
    }
    if whole_heap || !keys.is_empty() {
        let filter = Filter {
            kinds: Kinds::HEAP,
            ..Filter::default()
        };
        for event in trace.events(filter) {
            if let What::Allocate {
                address,
                size,
                stack,
                ..
            } = event.what
                && (whole_heap || keys.contains(&(stack, size)))
            {
                region.add(Span::new(address, size.max(1).saturating_add(BEYOND)));
            }
        }
    }
    region.join();
    region
}

/// Bytes of memory that a replay takes for a granule, measured for lines that a few nodes
/// share, and rounded up. Pages with a history take more, but there are few.
const A_GRANULE: u64 = 256;

/// Bytes of memory that a replay takes for a node, and for its table of blocks.
const A_NODE: u64 = 1 << 19;
const BLOCKS: u64 = 4 << 20;

/// The number of replays that fit into half of the `available` bytes.
fn at_once(granules: u64, nodes: u32, available: u64) -> usize {
    let each = granules.saturating_mul(A_GRANULE) + u64::from(nodes) * A_NODE + BLOCKS;
    (available / 2 / each).clamp(1, MOST) as usize
}

/// More replays at the same time are not faster: their tables leave the processor's caches.
const MOST: u64 = 16;

/// Bytes of memory that the system can give; a cautious guess if it does not say.
fn available() -> u64 {
    sunder_observe::proc::memory_left().unwrap_or(1 << 30)
}

#[cfg(test)]
#[path = "confined.rs"]
mod confined;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_bounds_what_runs_at_once() {
        assert_eq!(at_once(100, 3, 8 << 30), 16);
        // A million granules of 256 bytes: two replays fit into half of a gibibyte each.
        assert_eq!(at_once(1 << 20, 2, 1 << 30), 1);
        assert_eq!(at_once(1 << 20, 2, 2 << 30), 3);
        assert_eq!(at_once(1 << 30, 2, 0), 1);
    }
}
