//! The pass over the trace that simulates the pages that moved, with a tag on each access.

use super::counting::{Counting, Tag, UNCOUNTED};
use super::subjects::{BlockOf, Subjects};
use crate::simulate::layout::Layout;
use crate::simulate::machine::Machine;
use crate::simulate::moved::MovedGranules;
use crate::simulate::order::{Ordered, Watch};
use crate::simulate::relocate::Relocation;
use crate::simulate::replay::needs_heap;
use crate::simulate::steps::BlockRequest;
use anyhow::Result;
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use sunder_access::{Access, Address, ThreadId, Time};
use sunder_coherence::{Caches, Counts, Error, Simulator};
use sunder_pipeline::Process;
use sunder_trace::read::Blocks;
use sunder_trace::read::{Event, Kinds, Trace, What};

/// The number of pages, those with the most misses, for which the threads of each piece are
/// kept.
const DETAILED: usize = 256;

/// The most pieces into which a page is divided.
const PIECES: u64 = 512;

/// The counts of the pages that moved.
pub struct Counted {
    /// Misses by page, object, instruction and thread.
    pub counting: Counting,
    /// The objects.
    pub subjects: Subjects,
    /// What the costliest pages were used for.
    pub details: Details,
    /// The times of the first and the last event.
    pub span: (Time, Time),
}

/// Accesses of a thread to a piece of a page: reads, writes, updates, and how many of these
/// were locked.
pub type Uses = [u64; 4];

/// The accesses to the pieces of the costliest pages.
#[derive(Debug, Default)]
pub struct Details {
    /// The first bytes of these pages.
    pub pages: FxHashSet<u64>,
    /// Bytes of a piece.
    pub piece: u64,
    /// By the number of the object's part, the piece, and the thread.
    pub uses: FxHashMap<(u32, u16, ThreadId), Uses>,
}

/// A page with its misses by false and by true sharing, of which its cost depends.
pub type CostlyPage = (u64, u64, u64);

/// The page at `page`, which moved as `counts` say.
pub const fn costly(page: Address, counts: &Counts) -> CostlyPage {
    (page.0, counts.false_sharing, counts.true_sharing)
}

/// The costliest of `pages`, of which details are kept. What is among the costliest of all pages of a
/// trace is also among those of any part of them.
pub fn costliest(pages: impl Iterator<Item = CostlyPage>) -> Vec<CostlyPage> {
    let mut pages: Vec<_> = pages.collect();
    pages.sort_by_key(|&(page, falsely, truly)| (Reverse(falsely), Reverse(truly), page));
    pages.truncate(DETAILED);
    pages
}

impl Details {
    /// No accesses yet to the costliest of `pages`, of `granule` bytes each.
    pub fn new(pages: impl Iterator<Item = CostlyPage>, granule: u64) -> Self {
        Self {
            pages: costliest(pages).iter().map(|(page, ..)| *page).collect(),
            piece: (granule / PIECES).max(8),
            uses: FxHashMap::default(),
        }
    }

    /// Counts an access at `offset` into the page at `page`, to the object's part `part`.
    pub fn touched(&mut self, part: u32, page: u64, offset: u64, width: u32, access: &Access) {
        if !self.pages.contains(&page) {
            return;
        }
        let last = offset + u64::from(width).saturating_sub(1);
        for piece in offset / self.piece..=last / self.piece {
            let key = (part, piece as u16, access.thread);
            let uses = self.uses.entry(key).or_default();
            let kind = match access.kind {
                sunder_access::Kind::Read => 0,
                sunder_access::Kind::Write => 1,
                sunder_access::Kind::Update | sunder_access::Kind::Atomic => 2,
            };
            uses[kind] += 1;
            uses[3] += u64::from(access.kind == sunder_access::Kind::Atomic);
        }
    }
}

/// Replays the accesses to the pages in `moved` and counts their misses by object.
///
/// # Errors
/// If objects can't be placed, or such a machine can't be.
pub fn count(
    trace: &Trace,
    machine: &Machine,
    layout: &Layout,
    moved: &MovedGranules,
    process: &mut Process,
) -> Result<Counted> {
    let granule = machine.config.granule;
    let relocation = match needs_heap(machine, layout) {
        true => Some(Relocation::new(layout, granule)?),
        false => None,
    };
    let kinds = Kinds::HEAP.with(Kinds::THREADS);
    let mappings = process.mappings().clone();
    process.names.set_mappings(mappings);
    // With infinite caches, pages do not evict each other, and the other pages can be left out.
    let all = !matches!(machine.config.caches, Caches::Infinite);
    // Where objects are moved, a recorded address does not tell the page; if none moved between nodes,
    // no access is on one.
    let watches = !all && (relocation.is_none() || moved.is_empty());
    let watch = watches.then(|| Watch::new(moved.keys().copied(), granule));
    let mut second = Second {
        moved: moved.keys().map(|page| page.0).collect(),
        all,
        simulator: Simulator::with_observer(machine.config, Counting::default())?,
        relocation,
        blocks: Blocks::default(),
        subjects: Subjects::new(trace.stacks().map(|(id, f)| (id, f.to_vec())).collect()),
        details: Details::new(moved.iter().map(|(page, of)| costly(*page, of)), granule),
        machine,
        process,
    };
    let mut events = Ordered::new(trace, machine, kinds, watch);
    for event in events.by_ref() {
        second.take(trace, &event)?;
    }
    Ok(Counted {
        counting: second.simulator.finish().into_observer(),
        subjects: second.subjects,
        details: second.details,
        span: events.span().unwrap_or_default(),
    })
}

/// The state of the pass.
struct Second<'a, 'l> {
    moved: FxHashSet<u64>,
    all: bool,
    simulator: Simulator<Counting>,
    relocation: Option<Relocation<'l>>,
    /// The subject of each block, by recorded addresses.
    blocks: Blocks<u32>,
    subjects: Subjects,
    details: Details,
    machine: &'a Machine,
    process: &'a mut Process,
}

impl Second<'_, '_> {
    fn take(&mut self, trace: &Trace, event: &Event) -> Result<(), Error> {
        let thread = |index: u32| {
            let threads = trace.threads();
            let at = threads.binary_search_by_key(&index, |t| t.index);
            at.map(|i| threads[i].id).unwrap_or_default()
        };
        match event.what {
            What::Access { access, .. } => return self.access(&access, event),
            What::Allocate {
                address,
                size,
                stack,
                align,
            } => {
                let thread = thread(event.thread);
                let block = BlockOf {
                    start: address,
                    size,
                    thread,
                };
                let subject = self.subjects.block(self.process, block, stack);
                self.blocks.insert(address.0, size, event.ticks, subject);
                if let Some(relocation) = &mut self.relocation {
                    let request = BlockRequest {
                        size,
                        stack,
                        thread,
                        align,
                    };
                    relocation.allocated(address, request, event.ticks);
                }
            }
            What::Free { address } => {
                self.blocks.free(address.0, event.ticks);
                if let Some(relocation) = &mut self.relocation {
                    relocation.freed(address, event.ticks);
                }
            }
            What::ThreadStart { .. } => {
                let thread = thread(event.thread);
                self.process.threads.started(thread);
                self.process.recorded_stack(event, thread);
                self.subjects.look_again();
            }
            What::Stack { .. } | What::Frame { .. } => {
                self.process.recorded_stack(event, thread(event.thread));
            }
            _ => {}
        }
        Ok(())
    }

    fn access(&mut self, access: &Access, event: &Event) -> Result<(), Error> {
        let width = u32::from(access.width);
        let Some(mut relocation) = self.relocation.take() else {
            return self.pieces(access, event, access.address, access.address, width);
        };
        let mut done = 0;
        let heap_only = self.machine.heap_only;
        let result = relocation.parts(access.address, width, event.ticks, |place, part| {
            let from = access.address.offset(done);
            done += i64::from(part);
            if heap_only && !place.heap {
                return Ok(());
            }
            self.pieces(access, event, from, place.address, part)
        });
        self.relocation = Some(relocation);
        result
    }

    /// Calls the simulator for each page of an access that was recorded at `from` and lies at
    /// `at`.
    fn pieces(
        &mut self,
        access: &Access,
        event: &Event,
        from: Address,
        at: Address,
        width: u32,
    ) -> Result<(), Error> {
        let granule = self.machine.config.granule;
        let mut done = 0;
        while done < width {
            let here = at.0.wrapping_add(u64::from(done));
            let offset = here % granule;
            let part = u64::from(width - done).min(granule - offset) as u32;
            let recorded = from.offset(i64::from(done));
            done += part;
            let page = here - offset;
            let watched = self.moved.contains(&page);
            if !watched && !self.all {
                continue;
            }
            let tag = match watched {
                true => {
                    let tag = self.tag(access, event.ticks, recorded, page);
                    self.details.touched(tag.part, page, offset, part, access);
                    tag
                }
                false => UNCOUNTED,
            };
            let node = self.machine.node(event.thread);
            self.simulator
                .access(node, Address(here), part, access.kind, tag)?;
        }
        Ok(())
    }

    fn tag(&mut self, access: &Access, ticks: u64, recorded: Address, page: u64) -> Tag {
        let subject = match self.blocks.find(recorded.0, ticks) {
            Some((_, subject)) => subject,
            None => self.subjects.other(self.process, recorded),
        };
        self.process.figures.accesses += 1;
        self.simulator.observer_mut().tag(page, subject, access)
    }
}
