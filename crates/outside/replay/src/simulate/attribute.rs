//! The second pass: finds the objects of the granules that moved because of sharing. It uses
//! the judge and the names that every observer uses. The cost comes from the simulation.

use super::layout::Layout;
use super::machine::Machine;
use super::order::{Ordered, Watch};
use super::pages;
use super::relocate::Relocation;
use super::replay::needs_heap;
use super::show;
use super::steps::Asked;
use anyhow::Result;
use rustc_hash::FxHashSet;
use std::collections::BTreeMap;
use sunder_access::{
    Access, Address, Granule, Mapping, Mappings, PAGE, ProcessId, Span, ThreadId, Time,
};
use sunder_coherence::{Counts, Outcome};
use sunder_findings as findings;
use sunder_findings::{Findings, Limit, Sharing};
use sunder_observe::machine::TYPICAL_TRANSFER_NS;
use sunder_pipeline::Moved as Placed;
use sunder_pipeline::Process;
use sunder_pipeline::RecordedHeap;
use sunder_pipeline::assemble;
use sunder_pipeline::{Building, Observed};
use sunder_pipeline::{Wanted, judge_config};
use sunder_sharing::MIXED_FROM;
use sunder_trace::meta::Module;
use sunder_trace::read::{Event, Kinds, Thread, Trace, What};

/// Larger granules are pages, which are not looked at byte by byte (see `pages`).
const LARGEST: u64 = 256;

/// Nanoseconds of a reference that needs no other node, with the instructions around it: three
/// instructions at 3 GHz. A trace has no time of its own (recording slows a program down, and
/// unevenly), so costs are modelled.
const REFERENCE_NS: f64 = 1.0;

/// Nanoseconds of a miss on a page: the fault and the calls that change the page's protection
/// (6 us, design 4.4), and 4096 bytes over a network of 10 Gbit/s and back.
const PAGE_TRANSFER_NS: f64 = 20_000.0;

/// Nanoseconds of a miss on a machine with granules of `bytes` bytes.
const fn miss_ns(bytes: u64) -> f64 {
    if bytes > LARGEST {
        PAGE_TRANSFER_NS
    } else {
        TYPICAL_TRANSFER_NS
    }
}

/// The granules that moved because of sharing, with the counts of each.
pub type Moved = BTreeMap<Address, Counts>;

/// What the second pass found.
pub struct Shares {
    /// The judged accesses and the names.
    process: Process,
    /// The times of the first and the last event.
    pub span: (Time, Time),
    /// What the result can't say.
    pub limits: Vec<Limit>,
    /// Findings on pages, whose costs are not yet computed.
    on_pages: Vec<findings::Finding>,
}

/// Reads the trace again for the granules in `moved`, with the layout of the first pass.
///
/// # Errors
/// If the judge does not support the granule, or objects can't be placed.
pub fn attribute(
    trace: &Trace,
    machine: &Machine,
    layout: &Layout,
    moved: &Moved,
) -> Result<Shares> {
    let bytes = machine.config.granule;
    let looked_at = bytes <= LARGEST;
    let granule = Granule::new(bytes.min(LARGEST))?;
    let config = judge_config(granule.bytes(), None)?;
    let mut process = Process::recorded(ProcessId(trace.header().process), config);
    let mut relocation = match needs_heap(machine, layout) {
        true => Some(Relocation::new(layout, bytes)?),
        false => None,
    };
    let stacks = trace.stacks().map(|(id, frames)| (id, frames.to_vec()));
    let mut heap = RecordedHeap::new(stacks.collect());
    if let Some(relocation) = &relocation {
        heap.set_variables(relocation.variables());
    }
    process.set_recorded_heap(heap);
    process.simulated = moved
        .iter()
        .map(|(&line, c)| (line, show::counts(c)))
        .collect();
    process.set_mappings(mappings(trace));
    let mut span = None;
    if looked_at {
        let kinds = Kinds::HEAP.with(Kinds::THREADS);
        let watched = Watched::new(moved, granule);
        // Where objects are moved, a recorded address does not tell the granule, so no access
        // can be skipped by its address.
        let watch = relocation
            .is_none()
            .then(|| Watch::new(moved.keys().copied(), bytes));
        let mut events = Ordered::new(trace, machine, kinds, watch);
        for event in events.by_ref() {
            let mut seen = Seen {
                process: &mut process,
                relocation: relocation.as_mut(),
                watched: &watched,
                heap_only: machine.heap_only,
                trace,
            };
            seen.take(&event);
        }
        span = events.span();
    }
    let mut shares = Shares {
        process,
        span: span.unwrap_or_default(),
        limits: Vec::new(),
        on_pages: Vec::new(),
    };
    if !looked_at && !moved.is_empty() {
        let counted = pages::count(trace, machine, layout, moved, &mut shares.process)?;
        shares.span = counted.span;
        (shares.on_pages, shares.limits) = pages::findings(&counted, &mut shares.process, bytes);
    }
    Ok(shares)
}

/// The second pass's state, fed with events.
struct Seen<'a, 'l> {
    process: &'a mut Process,
    relocation: Option<&'a mut Relocation<'l>>,
    watched: &'a Watched<'a>,
    heap_only: bool,
    trace: &'a Trace,
}

impl Seen<'_, '_> {
    fn thread(&self, event: &Event) -> ThreadId {
        let threads = self.trace.threads();
        let at = threads.binary_search_by_key(&event.thread, |t| t.index);
        at.map(|i| threads[i].id).unwrap_or_default()
    }

    fn take(&mut self, event: &Event) {
        match event.what {
            What::Access { access, .. } => self.access(&access, event.ticks),
            What::Allocate {
                address,
                size,
                stack,
                align,
            } => {
                let asked = Asked {
                    size,
                    stack,
                    thread: self.thread(event),
                    align,
                };
                self.allocated(address, asked, event);
            }
            What::Free { address } => {
                let at = match &mut self.relocation {
                    Some(relocation) => relocation.freed(address, event.ticks),
                    None => Some(address),
                };
                let watched = self.watched;
                if let Some(at) = at {
                    self.process
                        .freed(at, event.time, |span| watched.touched_by(span));
                }
            }
            What::ThreadStart { .. } => {
                let thread = self.thread(event);
                self.process.threads.started(thread);
                self.process.stack_told(event, thread);
            }
            What::Stack { .. } | What::Frame { .. } => {
                let thread = self.thread(event);
                self.process.stack_told(event, thread);
            }
            _ => {}
        }
    }

    fn access(&mut self, access: &Access, ticks: u64) {
        let (process, watched) = (&mut *self.process, self.watched);
        let mut see = |address, width: u32| {
            if watched.touched_by(Span::new(address, u64::from(width))) {
                process.access(&Access {
                    address,
                    width: width as u8,
                    ..*access
                });
            }
        };
        let Some(relocation) = &mut self.relocation else {
            return see(access.address, u32::from(access.width));
        };
        let width = u32::from(access.width);
        let heap_only = self.heap_only;
        let Ok(()) = relocation.parts(access.address, width, ticks, |place, width| {
            if !heap_only || place.heap {
                see(place.address, width);
            }
            Ok::<(), std::convert::Infallible>(())
        });
    }

    fn allocated(&mut self, start: Address, asked: Asked, event: &Event) {
        let block = match &mut self.relocation {
            Some(relocation) => relocation.allocated(start, asked, event.ticks),
            None => {
                let from = Span::new(start, asked.size);
                Placed {
                    from,
                    to: from,
                    shape: None,
                }
            }
        };
        let span = Span::new(block.to.start, block.to.len.max(1));
        let watched = self.watched.touched_by(span);
        self.process.allocated(
            block,
            asked.stack,
            asked.thread,
            watched.then_some(event.time),
        );
    }
}

/// The granules that moved, in a form that is quick to look up for every access.
struct Watched<'a> {
    moved: &'a Moved,
    bases: FxHashSet<Address>,
    granule: Granule,
}

impl<'a> Watched<'a> {
    fn new(moved: &'a Moved, granule: Granule) -> Self {
        Self {
            moved,
            bases: moved.keys().copied().collect(),
            granule,
        }
    }

    fn touched_by(&self, span: Span) -> bool {
        let first = self.granule.base(span.start);
        if span.end().0 - first.0 <= self.granule.bytes() {
            return self.bases.contains(&first);
        }
        self.moved.range(first..span.end()).next().is_some()
    }
}

/// The loaded files as the target had mapped them; later mappings cover earlier ones.
pub fn mappings(trace: &Trace) -> Mappings {
    let mut all = Mappings::new();
    let modules: Vec<&Module> = trace.modules().iter().flat_map(|(_, list)| list).collect();
    for module in modules {
        for segment in &module.segments {
            // A segment may begin anywhere in a page; a mapping begins at a page.
            let into = segment.start % PAGE;
            all.insert(Mapping {
                span: Span::new(Address(segment.start - into), segment.bytes + into),
                file_offset: segment.file_offset.saturating_sub(into),
                path: module.path.clone(),
                inode: 0,
                read: segment.flags & 4 != 0,
                write: segment.flags & 2 != 0,
                execute: segment.flags & 1 != 0,
                shared: false,
            });
        }
    }
    all
}

/// Makes the findings, with the simulation's figures.
pub fn finish(
    mut shares: Shares,
    outcome: &Outcome,
    machine: &Machine,
    trace: &Trace,
    observed: Observed,
) -> Findings {
    let (start, end) = shares.span;
    let mut result = Building::new(observed, 0);
    let mut assembled = assemble(&mut shares.process, &Wanted::All, start, end);
    assembled.findings.append(&mut shares.on_pages);
    for finding in &mut assembled.findings {
        finding.confirmed = true;
        price(finding, outcome, machine, trace);
    }
    result.add(&shares.process, assembled);
    result.finish()
}

/// Computes what the misses of a finding cost the threads that took part, and of which kind the
/// misses were.
fn price(finding: &mut findings::Finding, outcome: &Outcome, machine: &Machine, trace: &Trace) {
    let Some(counts) = finding.simulated else {
        return;
    };
    let moves = (counts.true_sharing + counts.false_sharing) as f64;
    let users = |thread: &&Thread| {
        let words = finding.lines.iter().flat_map(|line| &line.words);
        let mut threads = words.flat_map(|word| &word.threads).map(|user| user.id);
        match &finding.on_pages {
            Some(pages) => pages.threads.iter().any(|user| user.id == thread.id.0),
            None => threads.any(|user| user == thread.id.0),
        }
    };
    let miss_ns = miss_ns(machine.config.granule);
    let mut nodes: Vec<u32> = trace
        .threads()
        .iter()
        .filter(users)
        .map(|thread| machine.node(thread.index))
        .collect();
    nodes.sort_unstable();
    nodes.dedup();
    let spent: f64 = nodes
        .iter()
        .filter_map(|node| outcome.nodes().get(*node as usize))
        .map(|of| of.references as f64 * REFERENCE_NS + of.misses() as f64 * miss_ns)
        .sum();
    if spent > 0.0 {
        finding.cost_percent = (moves * miss_ns / spent * 100.0).min(100.0);
    }
    if moves > 0.0 {
        finding.false_share = counts.false_sharing as f64 / moves;
        finding.sharing = match finding.false_share {
            share if share < MIXED_FROM => Sharing::True,
            share if share > 1.0 - MIXED_FROM => Sharing::False,
            _ => Sharing::Mixed,
        };
    }
}
