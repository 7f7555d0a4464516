//! The second pass for granules that are pages: too many objects meet on one to look at
//! its bytes as a line's are looked at. The pages that moved are simulated again, each
//! access with a tag that says whose data it touched and which instruction did it, so
//! each miss is counted for the object that was asked for and for the one that was
//! written meanwhile. Memory follows the pages that are shared, the objects on them and
//! the code that touches them; single bytes are kept of the dearest pages only.
//!
//! Called by `attribute`; must not know how a result is told.

mod counting;
mod subjects;
mod tell;

pub use tell::findings;

use super::attribute::Moved;
use super::blocks::Blocks;
use super::layout::Layout;
use super::machine::Machine;
use super::order::{Ordered, Watch};
use super::relocate::Relocation;
use super::replay::needs_heap;
use super::steps::Asked;
use anyhow::Result;
use counting::{Counting, Tag, UNTOLD};
use rustc_hash::{FxHashMap, FxHashSet};
use std::cmp::Reverse;
use subjects::Subjects;
use sunder_access::{Access, Address, ThreadId, Time};
use sunder_coherence::{Caches, Error, Simulator};
use sunder_pipeline::Process;
use sunder_trace::read::{Event, Kinds, Trace, What};

/// Pages of which it is kept who touched what: those with most misses.
const DETAILED: usize = 256;

/// A page is told apart into so many pieces at most.
const PIECES: u64 = 512;

/// What was counted on the pages that moved.
pub struct Counted {
    counting: Counting,
    subjects: Subjects,
    details: Details,
    /// From the first to the last event.
    pub span: (Time, Time),
}

/// Accesses of a thread to a piece of a page: reads, writes, updates, and of these the
/// locked ones.
type Uses = [u64; 4];

/// Who touched which piece of the dearest pages.
#[derive(Debug, Default)]
struct Details {
    pages: FxHashSet<u64>,
    piece: u64,
    uses: FxHashMap<(u32, u16, ThreadId), Uses>,
}

impl Details {
    fn new(moved: &Moved, granule: u64) -> Self {
        let mut pages: Vec<_> = moved.iter().collect();
        pages.sort_by_key(|(page, c)| (Reverse(c.false_sharing), Reverse(c.true_sharing), **page));
        Self {
            pages: pages.iter().take(DETAILED).map(|(p, _)| p.0).collect(),
            piece: (granule / PIECES).max(8),
            uses: FxHashMap::default(),
        }
    }

    /// `part` is the object's part of the page at `page`, `offset` into it the access.
    fn touched(&mut self, part: u32, page: u64, offset: u64, width: u32, access: &Access) {
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

/// Replays the pages in `moved` and counts for whom they moved.
///
/// # Errors
/// If objects can't be placed, or there can be no such machine.
pub fn count(
    trace: &Trace,
    machine: &Machine,
    layout: &Layout,
    moved: &Moved,
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
    // Pages do not disturb each other where nothing is replaced.
    let all = !matches!(machine.config.caches, Caches::Infinite);
    // Where objects move, an address does not tell yet.
    let watch = (!all && relocation.is_none()).then(|| Watch::new(moved.keys().copied(), granule));
    let mut second = Second {
        moved: moved.keys().map(|page| page.0).collect(),
        all,
        simulator: Simulator::with_observer(machine.config, Counting::default())?,
        relocation,
        blocks: Blocks::default(),
        subjects: Subjects::new(trace),
        details: Details::new(moved, granule),
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

/// What the pass is made of.
struct Second<'a, 'l> {
    moved: FxHashSet<u64>,
    all: bool,
    simulator: Simulator<Counting>,
    relocation: Option<Relocation<'l>>,
    /// By recorded addresses: the subject of each block.
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
                let subject = self
                    .subjects
                    .block(self.process, address, size, stack, thread);
                self.blocks.insert(address.0, size, event.ticks, subject);
                if let Some(relocation) = &mut self.relocation {
                    let asked = Asked {
                        size,
                        stack,
                        thread,
                        align,
                    };
                    relocation.allocated(address, asked, event.ticks);
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
                self.process.stack_told(event, thread);
                self.subjects.look_again();
            }
            What::Stack { .. } | What::Frame { .. } => {
                self.process.stack_told(event, thread(event.thread));
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

    /// The part of an access that was recorded at `from` and lies at `at`, page by page.
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
                false => UNTOLD,
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
