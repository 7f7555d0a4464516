//! The second pass: whose data it was. Only granules that moved for the sake of
//! sharing are looked at, with the judge and the names that every observer
//! uses; what it costs comes from the simulation.

use super::heap::RecordedHeap;
use super::machine::Machine;
use super::order::Ordered;
use super::show;
use crate::assemble::assemble;
use crate::process::Process;
use crate::result::{Building, Observed};
use crate::session::judge_config;
use anyhow::Result;
use std::collections::BTreeMap;
use sunder_access::{Address, Granule, Mapping, Mappings, ProcessId, Span, Time};
use sunder_coherence::{Counts, Outcome};
use sunder_findings as findings;
use sunder_findings::{Findings, Sharing};
use sunder_observe::machine::TYPICAL_TRANSFER_NS;
use sunder_sharing::MIXED_FROM;
use sunder_trace::meta::Module;
use sunder_trace::read::{Event, Filter, Kinds, Thread, Trace, What};

/// Larger granules are not looked at byte by byte.
const LARGEST: u64 = 256;

/// What a reference costs that needs nobody else, with the instructions around
/// it, in nanoseconds: three instructions at 3 GHz. A trace has no time of its
/// own (recording slows a program down, and unevenly), so costs are modelled.
const REFERENCE_NS: f64 = 1.0;

/// Granules that moved for the sake of sharing.
pub type Moved = BTreeMap<Address, Counts>;

/// What the second pass gave.
pub struct Shares {
    /// Who shares what.
    process: Process,
    /// From the first to the last event.
    pub span: (Time, Time),
    /// What can't be said.
    pub limits: Vec<String>,
}

/// Reads the trace again, for the granules in `moved`.
///
/// # Errors
/// If the judge does not know the granule.
pub fn attribute(trace: &Trace, machine: &Machine, moved: &Moved) -> Result<Shares> {
    let bytes = machine.config.granule;
    let mut limits = Vec::new();
    let looked_at = bytes <= LARGEST;
    if !looked_at && !moved.is_empty() {
        limits.push(format!(
            "Objects are named in granules of up to {LARGEST} bytes; for {bytes} only the machine's \
             counts are told."
        ));
    }
    let granule = Granule::new(bytes.min(LARGEST))?;
    let config = judge_config(granule.bytes(), None)?;
    let mut process = Process::recorded(ProcessId(trace.header().process), config);
    let stacks = trace.stacks().map(|(id, frames)| (id, frames.to_vec()));
    process.set_recorded_heap(RecordedHeap::new(stacks.collect()));
    process.simulated = moved
        .iter()
        .map(|(&line, c)| (line, show::counts(c)))
        .collect();
    process.set_mappings(mappings(trace));
    let mut span: Option<(Time, Time)> = None;
    if looked_at {
        let kinds = Kinds::ACCESSES.with(Kinds::HEAP).with(Kinds::THREADS);
        let filter = Filter {
            kinds,
            ..Filter::default()
        };
        for event in Ordered::new(trace, machine.order, filter) {
            let first = span.map_or(event.time, |s| s.0);
            span = Some((first, event.time));
            take(&mut process, granule, moved, &event, trace);
        }
    }
    Ok(Shares {
        process,
        span: span.unwrap_or_default(),
        limits,
    })
}

fn take(process: &mut Process, granule: Granule, moved: &Moved, event: &Event, trace: &Trace) {
    let thread = || {
        let known = trace.threads().iter().find(|t| t.index == event.thread);
        known.map(|t| t.id).unwrap_or_default()
    };
    match event.what {
        What::Access { access, .. } if touches(moved, granule, access.span()) => {
            process.access(&access);
        }
        What::Allocate {
            address,
            size,
            stack,
        } => {
            let span = Span::new(address, size.max(1));
            let watched = touches(moved, granule, span);
            process.allocated(span, stack, thread(), watched.then_some(event.time));
        }
        What::Free { address } => {
            process.freed(address, event.time, |span| touches(moved, granule, span))
        }
        What::ThreadStart { .. } => process.threads.started(thread()),
        _ => {}
    }
}

fn touches(moved: &Moved, granule: Granule, span: Span) -> bool {
    let first = granule.base(span.start);
    moved.range(first..span.end()).next().is_some()
}

/// The loaded files, as the target had them mapped; later ones cover earlier ones.
fn mappings(trace: &Trace) -> Mappings {
    let mut all = Mappings::new();
    let modules: Vec<&Module> = trace.modules().iter().flat_map(|(_, list)| list).collect();
    for module in modules {
        for segment in &module.segments {
            // Segments begin anywhere in a page; mappings do not.
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

const PAGE: u64 = 4096;

/// Findings of the process, with the simulation's figures.
pub fn finish(
    mut shares: Shares,
    outcome: &Outcome,
    machine: &Machine,
    trace: &Trace,
    observed: Observed,
) -> Findings {
    let (start, end) = shares.span;
    let mut result = Building::new(observed, 0);
    let mut assembled = assemble(&mut shares.process, start, end);
    for finding in &mut assembled.findings {
        finding.confirmed = true;
        price(finding, outcome, machine, trace);
    }
    result.add(&shares.process, assembled);
    result.finish()
}

/// What the misses of a finding cost the threads that took part, and of what kind
/// they were.
fn price(finding: &mut findings::Finding, outcome: &Outcome, machine: &Machine, trace: &Trace) {
    let Some(counts) = finding.simulated else {
        return;
    };
    let moves = (counts.true_sharing + counts.false_sharing) as f64;
    let users = |thread: &&Thread| {
        let words = finding.lines.iter().flat_map(|line| &line.words);
        let mut threads = words.flat_map(|word| &word.threads);
        threads.any(|user| user.id == thread.id.0)
    };
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
        .map(|of| of.references as f64 * REFERENCE_NS + of.misses() as f64 * TYPICAL_TRANSFER_NS)
        .sum();
    if spent > 0.0 {
        finding.cost_percent = (moves * TYPICAL_TRANSFER_NS / spent * 100.0).min(100.0);
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
