//! One replay: a trace on one machine with one layout of its objects. Any number of replays may
//! be fed from one reading of the trace.

use super::layout::{Layout, Subject};
use super::machine::Machine;
use super::region::Region;
use super::relocate::{Figures, Relocation, VARIABLES};
use super::steps::{HeapChange, Steps};
use anyhow::Result;
use std::ops::Range;
use sunder_access::Address;
use sunder_coherence::{Config, Counts, Error, Miss, MissKind, Observer, Outcome, Simulator};
use sunder_placement::Stats;

/// An observer of misses that counts them by subject.
pub trait Counting: Observer {
    /// The tag of an access to `subject`.
    fn tag(subject: Subject) -> Self::Tag;
}

impl Counting for () {
    fn tag(_: Subject) {}
}

/// Counts the misses of each subject.
#[derive(Clone, Debug, Default)]
pub struct BySubject {
    /// By the subject's number.
    pub misses: Vec<Misses>,
}

impl Misses {
    /// The sum of all kinds.
    pub const fn all(self) -> u64 {
        self.cold + self.replacement + self.truly + self.falsely
    }
}

impl From<Counts> for Misses {
    fn from(counts: Counts) -> Self {
        Self {
            cold: counts.cold,
            replacement: counts.replacement,
            truly: counts.true_sharing,
            falsely: counts.false_sharing,
        }
    }
}

/// Misses by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Misses {
    /// Of nodes that had never held the granule.
    pub cold: u64,
    /// Of granules that were evicted for lack of room.
    pub replacement: u64,
    /// That bring a value that another node wrote (true sharing).
    pub truly: u64,
    /// That bring no such value (false sharing).
    pub falsely: u64,
}

impl Observer for BySubject {
    type Tag = Subject;

    fn miss(&mut self, miss: &Miss<Subject>) {
        let subject = usize::from(miss.tag);
        if self.misses.len() <= subject {
            self.misses.resize(subject + 1, Misses::default());
        }
        let of = &mut self.misses[subject];
        match miss.kind {
            MissKind::Cold => of.cold += 1,
            MissKind::Replacement => of.replacement += 1,
            MissKind::TrueSharing => of.truly += 1,
            MissKind::FalseSharing => of.falsely += 1,
        }
    }
}

impl Counting for BySubject {
    fn tag(subject: Subject) -> Subject {
        subject
    }
}

/// A replay in progress.
pub struct Replay<'l, O: Counting = ()> {
    simulator: Simulator<O>,
    relocation: Option<Relocation<'l>>,
    machine: &'l Machine,
    region: Option<&'l Region>,
}

/// The results of a replay.
pub struct Replayed<O: Counting = ()> {
    /// The simulator's counts.
    pub outcome: Outcome<O>,
    /// The statistics of the placement, and the figures of changed objects, if objects were
    /// moved.
    pub placed: Option<(Stats, Figures)>,
}

impl<'l, O: Counting> Replay<'l, O> {
    /// A replay of the threads of `machine` with the configuration `config`, its objects laid
    /// out by `layout`.
    ///
    /// # Errors
    /// If such a machine can't be.
    pub fn new(
        machine: &'l Machine,
        config: Config,
        layout: &'l Layout,
        counts: O,
    ) -> Result<Self> {
        let relocation = match needs_heap(machine, layout) {
            true => Some(Relocation::new(layout, config.granule)?),
            false => None,
        };
        Ok(Self {
            simulator: Simulator::with_observer(config, counts)?,
            relocation,
            machine,
            region: None,
        })
    }

    /// A replay that counts by subject and is confined to accesses to `region` and to moved
    /// objects. Only with infinite caches.
    ///
    /// # Errors
    /// If such a machine can't be.
    pub fn confined(
        machine: &'l Machine,
        config: Config,
        layout: &'l Layout,
        counts: O,
        region: &'l Region,
    ) -> Result<Self> {
        Ok(Self {
            simulator: Simulator::with_observer(config, counts)?,
            relocation: Some(Relocation::new(layout, config.granule)?),
            machine,
            region: Some(region),
        })
    }

    /// Replays the next steps of the trace.
    ///
    /// # Errors
    /// If more granules are touched than can be numbered.
    pub fn feed(&mut self, steps: &Steps) -> Result<(), Error> {
        match &mut self.relocation {
            None => feed_plain(&mut self.simulator, steps),
            Some(relocation) => {
                let mut to = To {
                    simulator: &mut self.simulator,
                    relocation,
                    heap_only: self.machine.heap_only,
                    region: self.region,
                };
                to.feed(steps)
            }
        }
    }

    /// Ends the replay and returns its counts.
    pub fn finish(self) -> Replayed<O> {
        let placed = self.relocation.map(|r| (r.stats(), r.figures()));
        Replayed {
            outcome: self.simulator.finish(),
            placed,
        }
    }
}

/// Whether a replay has to know the heap's blocks.
pub fn needs_heap(machine: &Machine, layout: &Layout) -> bool {
    machine.heap_only || !layout.is_actual() || !layout.is_uncounted()
}

fn feed_plain<O: Counting>(simulator: &mut Simulator<O>, steps: &Steps) -> Result<(), Error> {
    let tag = O::tag(0);
    for (&address, &packed) in steps.addresses.iter().zip(&steps.packed) {
        simulator.access(
            packed.node(),
            Address(address),
            packed.width(),
            packed.kind(),
            tag,
        )?;
    }
    Ok(())
}

/// Makes accesses whose objects may be moved.
struct To<'a, 'l, O: Counting> {
    simulator: &'a mut Simulator<O>,
    relocation: &'a mut Relocation<'l>,
    heap_only: bool,
    region: Option<&'a Region>,
}

impl<O: Counting> To<'_, '_, O> {
    fn feed(&mut self, steps: &Steps) -> Result<(), Error> {
        let mut done = 0;
        for change in &steps.changes {
            self.accesses(steps, done..change.before)?;
            done = change.before;
            match change.kind {
                HeapChange::Allocate(request) => {
                    self.relocation
                        .allocated(change.address, request, change.ticks);
                }
                HeapChange::Free => {
                    self.relocation.freed(change.address, change.ticks);
                }
            }
        }
        self.accesses(steps, done..steps.addresses.len())
    }

    /// Makes the accesses of `part`, between which the heap does not change.
    fn accesses(&mut self, steps: &Steps, part: Range<usize>) -> Result<(), Error> {
        let packed = &steps.packed[part.clone()];
        let ticks = &steps.ticks[part.clone()];
        let (heap_only, region) = (self.heap_only, self.region);
        let simulator = &mut *self.simulator;
        for ((&address, &packed), &ticks) in steps.addresses[part].iter().zip(packed).zip(ticks) {
            let (node, kind) = (packed.node(), packed.kind());
            let (address, width) = (Address(address), packed.width());
            self.relocation
                .parts(address, width, ticks, |place, width| {
                    if heap_only && !place.heap {
                        return Ok(());
                    }
                    let tag = O::tag(place.subject);
                    match region {
                        Some(region) if place.address.0 < VARIABLES => {
                            region.parts(place.address, width, |address, width| {
                                simulator.access(node, address, width, kind, tag)
                            })
                        }
                        _ => simulator.access(node, place.address, width, kind, tag),
                    }
                })?;
        }
        Ok(())
    }
}
