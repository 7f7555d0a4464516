//! The second pass: finds the objects of the granules that moved because of sharing. It is an
//! observer like any other: it hands the accesses to the judge and the names that every observer
//! uses. Which granules matter, and what they cost, comes from the simulation.

use super::layout::Layout;
use super::machine::{LARGEST_LINE, Machine};
use super::mappings::mappings;
use super::moved::{MovedGranules, MovedSet};
use super::order::{Ordered, Watch};
use super::pages;
use super::price::{Prices, price};
use super::relocate::Relocation;
use super::replay::needs_heap;
use super::show;
use super::steps::BlockRequest;
use crate::memory;
use anyhow::Result;
use std::cell::RefCell;
use std::rc::Rc;
use sunder_access::{Access, Address, Granule, ProcessId, Span, ThreadId, Time};
use sunder_findings::{Finding, Findings, Limit};
use sunder_pipeline::{
    Follow, Moved, Observed, Observer, Process, RecordedHeap, Session, judge_config, take_rest,
};
use sunder_sharing::Config;
use sunder_trace::read::{Event, Kinds, Trace, What};

/// What the second pass found.
pub struct Shares {
    /// The judged accesses and the names.
    session: Session,
    /// The times of the first and the last event.
    pub span: (Time, Time),
    /// What the result can't say.
    pub limits: Vec<Limit>,
    /// Findings on pages, whose costs are not yet computed.
    on_pages: Vec<Finding>,
}

/// How the lines that moved are judged in a recording that began at `origin`. What is found of a line
/// depends on the accesses to it alone, so that parts of a trace can be judged apart.
///
/// # Errors
/// If the judge does not support the granule.
pub fn exact_config(granule: Granule, origin: Time) -> Result<Config> {
    let mut config = judge_config(granule.bytes(), None)?;
    config.origin = Some(origin);
    config.keeps_all = true;
    Ok(config)
}

/// Reads the trace again for the granules in `moved`, with the layout of the first pass.
///
/// # Errors
/// If the judge does not support the granule, or objects can't be placed.
pub fn attribute(
    trace: &Trace,
    machine: &Machine,
    layout: &Layout,
    moved: &MovedGranules,
) -> Result<Shares> {
    let granule = Granule::new(machine.config.granule.min(LARGEST_LINE))?;
    let config = exact_config(granule, Time(trace.header().monotonic))?;
    let process = ProcessId(trace.header().process);
    let mut session = Session::recorded(config, Follow::Only(process));
    let mut pass = SecondPass {
        trace,
        machine,
        layout,
        moved,
        is_done: false,
        span: None,
        limits: Vec::new(),
        on_pages: Vec::new(),
    };
    take_rest(&mut pass, &mut session)?;
    memory::check(trace)?;
    Ok(Shares {
        session,
        span: pass.span.unwrap_or_default(),
        limits: pass.limits(),
        on_pages: pass.on_pages,
    })
}

/// A trace that is replayed for the granules that moved.
struct SecondPass<'a> {
    trace: &'a Trace,
    machine: &'a Machine,
    layout: &'a Layout,
    moved: &'a MovedGranules,
    /// Whether the trace was read.
    is_done: bool,
    /// The times of the first and the last event.
    span: Option<(Time, Time)>,
    limits: Vec<Limit>,
    /// Findings on pages, which the judge does not look at byte by byte.
    on_pages: Vec<Finding>,
}

impl Observer for SecondPass<'_> {
    type Error = anyhow::Error;

    fn drain(&mut self, session: &mut Session) -> Result<()> {
        if std::mem::replace(&mut self.is_done, true) {
            return Ok(());
        }
        let bytes = self.machine.config.granule;
        let relocation = match needs_heap(self.machine, self.layout) {
            true => Some(Relocation::new(self.layout, bytes)?),
            false => None,
        };
        let trace = self.trace;
        let stacks = trace.stacks().map(|(id, frames)| (id, frames.to_vec()));
        let mut heap = RecordedHeap::new(stacks.collect());
        if let Some(relocation) = &relocation {
            heap.set_variables(relocation.variables());
        }
        let heap = Rc::new(RefCell::new(heap));
        let process = session.process(ProcessId(trace.header().process));
        process.set_blocks(Rc::clone(&heap));
        process.simulated = self
            .moved
            .iter()
            .map(|(&line, c)| (line, show::counts(c)))
            .collect();
        process.set_mappings(mappings(trace));
        if bytes <= LARGEST_LINE {
            self.lines(process, &heap, relocation)?;
        } else {
            self.pages(process)?;
        }
        Ok(())
    }

    fn limits(&self) -> Vec<Limit> {
        self.limits.clone()
    }
}

impl<'a> SecondPass<'a> {
    /// Hands over each access to a line that moved, and each change of the heap there.
    fn lines(
        &mut self,
        process: &mut Process,
        heap: &RefCell<RecordedHeap>,
        mut relocation: Option<Relocation<'a>>,
    ) -> Result<()> {
        let (trace, machine, moved) = (self.trace, self.machine, self.moved);
        let bytes = machine.config.granule;
        let kinds = Kinds::HEAP.with(Kinds::THREADS);
        let watched = MovedSet::new(moved, Granule::new(bytes)?);
        // Where objects are moved, a recorded address does not tell the granule, so no access
        // can be skipped by its address.
        let watch = relocation
            .is_none()
            .then(|| Watch::new(moved.keys().copied(), bytes));
        let mut events = Ordered::new(trace, machine, kinds, watch);
        for event in events.by_ref() {
            let mut to = ToProcess {
                process: &mut *process,
                heap,
                relocation: relocation.as_mut(),
                watched: &watched,
                heap_only: machine.heap_only,
                trace,
            };
            to.take(&event);
        }
        self.span = events.span();
        Ok(())
    }

    /// Counts the misses on the pages that moved. Their findings are made here.
    fn pages(&mut self, process: &mut Process) -> Result<()> {
        let (machine, layout) = (self.machine, self.layout);
        let counted = pages::count(self.trace, machine, layout, self.moved, process)?;
        self.span = Some(counted.span);
        let bytes = machine.config.granule;
        (self.on_pages, self.limits) = pages::findings(&counted, process, bytes);
        Ok(())
    }
}

/// Hands one event over to the process.
struct ToProcess<'a, 'l> {
    process: &'a mut Process,
    heap: &'a RefCell<RecordedHeap>,
    relocation: Option<&'a mut Relocation<'l>>,
    watched: &'a MovedSet<'a>,
    heap_only: bool,
    trace: &'a Trace,
}

impl ToProcess<'_, '_> {
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
                let request = BlockRequest {
                    size,
                    stack,
                    thread: self.thread(event),
                    align,
                };
                self.allocated(address, request, event);
            }
            What::Free { address } => {
                let at = match &mut self.relocation {
                    Some(relocation) => relocation.freed(address, event.ticks),
                    None => Some(address),
                };
                if let Some(at) = at {
                    let judged = |span| self.watched.touched_by(span);
                    self.heap.borrow_mut().freed(at, event.time, judged);
                    self.process.heap_events();
                }
            }
            What::ThreadStart { .. } => {
                let thread = self.thread(event);
                self.process.threads.started(thread);
                self.process.recorded_stack(event, thread);
            }
            What::Stack { .. } | What::Frame { .. } => {
                let thread = self.thread(event);
                self.process.recorded_stack(event, thread);
            }
            _ => {}
        }
    }

    fn access(&mut self, access: &Access, ticks: u64) {
        let (process, watched) = (&mut *self.process, self.watched);
        let mut see = |address, width: u32| {
            watched.parts(Span::new(address, u64::from(width)), |part| {
                process.access(&Access {
                    address: part.start,
                    width: part.len as u8,
                    ..*access
                });
            });
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

    fn allocated(&mut self, start: Address, request: BlockRequest, event: &Event) {
        let block = match &mut self.relocation {
            Some(relocation) => relocation.allocated(start, request, event.ticks),
            None => {
                let from = Span::new(start, request.size);
                Moved {
                    from,
                    to: from,
                    shape: None,
                }
            }
        };
        let span = Span::new(block.to.start, block.to.len.max(1));
        let judged = self.watched.touched_by(span).then_some(event.time);
        let mut heap = self.heap.borrow_mut();
        heap.allocated(block, request.stack, request.thread, judged);
        drop(heap);
        self.process.heap_events();
    }
}

/// Makes the findings, with the simulation's figures.
pub fn finish(shares: Shares, prices: &Prices<'_>, observed: Observed) -> Findings {
    let (start, end) = shares.span;
    let mut on_pages = shares.on_pages;
    shares
        .session
        .finish_priced(start, end, observed, |findings| {
            findings.append(&mut on_pages);
            for finding in findings {
                finding.confirmed = true;
                price(finding, prices);
            }
        })
}
