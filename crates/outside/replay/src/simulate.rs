//! Replays a trace on a chosen machine, and says why its nodes missed and to which objects the
//! misses belong. There are two passes. The first simulates all accesses and finds the granules
//! that move between nodes because of sharing. The second looks at these alone, byte by byte,
//! so that the memory used depends on how much is shared, not on the length of the trace. Both
//! may move objects (`relocate`), as an allocation policy or a change to a type would.

pub mod attribute;
pub mod changes;
pub mod layout;
pub mod machine;
pub mod mappings;
pub mod moved;
mod order;
pub mod pages;
pub mod price;
pub mod region;
pub mod relocate;
pub mod replay;
pub mod resolve;
pub mod show;
pub mod steps;

pub use changes::{parse_align, parse_placement};
pub use machine::{parse_caches, parse_place};

use crate::memory;
use crate::options::Simulate;
use anyhow::{Result, ensure};
use attribute::Shares;
use layout::Layout;
use machine::Machine;
use moved::moved_granules;
use price::Prices;
use replay::{Replay, Replayed};
use show::Tally;
use std::time::Instant;
use sunder_access::Time;
use sunder_findings as findings;
use sunder_findings::Limit;
use sunder_observe::machine as real;
use sunder_pipeline::{Observed, show_machine};
use sunder_trace::read::Trace;

/// Replays the trace and returns the result.
///
/// # Errors
/// If the trace can't be read, or such a machine can't be.
pub fn simulate(options: &Simulate) -> Result<findings::Findings> {
    let trace = memory::open(&options.file, options.memory)?;
    let machine = Machine::of(options, &trace)?;
    let layout = resolve::resolve(options, &trace)?;
    memory::check(&trace)?;
    let first = Pass::first(&trace, &machine, &layout)?;
    let moved = moved_granules(&first.replayed.outcome);
    let shares = attribute::attribute(&trace, &machine, &layout, &moved)?;
    Ok(join(options, &trace, &machine, &layout, &first, shares))
}

/// What the first pass found.
pub struct Pass {
    /// The simulator's counts.
    pub replayed: Replayed,
    /// Blocks of the trace that could not be read.
    damaged: u64,
    /// Seconds that the pass took.
    seconds: f64,
}

impl Pass {
    /// Makes the first pass.
    ///
    /// # Errors
    /// If such a machine can't be, or the trace has no accesses.
    pub fn first(trace: &Trace, machine: &Machine, layout: &Layout) -> Result<Self> {
        let begin = Instant::now();
        let mut replay = Replay::new(machine, machine.config, layout, ())?;
        let heap = replay::needs_heap(machine, layout);
        let damaged = steps::each_of(trace, machine, heap, None, |steps| replay.feed(steps))?;
        memory::check(trace)?;
        let replayed = replay.finish();
        ensure!(
            replayed.outcome.accesses() > 0,
            "{} holds no accesses{}",
            trace.path().display(),
            if machine.heap_only {
                " to heap objects"
            } else {
                ""
            }
        );
        Ok(Self {
            replayed,
            damaged,
            seconds: begin.elapsed().as_secs_f64(),
        })
    }
}

/// The result, after the second pass.
pub fn join(
    options: &Simulate,
    trace: &Trace,
    machine: &Machine,
    layout: &Layout,
    first: &Pass,
    mut shares: Shares,
) -> findings::Findings {
    let header = trace.header();
    let mut limits = std::mem::take(&mut shares.limits);
    limits.extend(partial(trace, first.damaged));
    let recorded = Recorded {
        program: &header.program,
        arguments: &header.arguments,
        span: shares.span,
    };
    let observed = observed(&recorded, options, machine, limits);
    let replayed = &first.replayed;
    let tally = Tally::of(&replayed.outcome);
    let node = |thread: &sunder_trace::read::Thread| (thread.id, machine.node(thread.index));
    let prices = Prices {
        granule: machine.config.granule,
        nodes: &tally.nodes,
        threads: trace.threads().iter().map(node).collect(),
    };
    let mut result = attribute::finish(shares, &prices, observed);
    let seconds = if options.reproducible {
        0.0
    } else {
        first.seconds
    };
    let mut simulation = show::simulation(machine, tally, seconds);
    simulation.placement = show::placement(machine, layout, replayed);
    result.simulation = Some(simulation);
    result
}

/// What a result tells of the recording.
pub struct Recorded<'a> {
    /// The program's file.
    pub program: &'a str,
    /// Its arguments, the name first.
    pub arguments: &'a [String],
    /// The times of the first and the last event.
    pub span: (Time, Time),
}

/// What is known of a result before the findings are made.
pub fn observed(
    recorded: &Recorded<'_>,
    options: &Simulate,
    machine: &Machine,
    limits: Vec<Limit>,
) -> Observed {
    let mut command = vec![recorded.program.to_owned()];
    command.extend(recorded.arguments.iter().skip(1).cloned());
    let line = machine.config.granule as u32;
    Observed {
        program: findings::Program {
            command,
            path: Some(recorded.program.to_owned()),
            exit: None,
        },
        machine: match options.reproducible {
            true => findings::Machine {
                line_size: line,
                ..findings::Machine::default()
            },
            false => show_machine(&real::Machine::read(), line, None),
        },
        run: findings::Run {
            seconds: recorded.span.1.nanoseconds_since(recorded.span.0) as f64 / 1e9,
            observer: "trace".into(),
            threshold_percent: options
                .threshold
                .unwrap_or(findings::DEFAULT_THRESHOLD_PERCENT),
            observer_cpu_seconds: match options.reproducible {
                true => 0.0,
                false => sunder_pipeline::own_cpu_seconds(),
            },
            ..findings::Run::default()
        },
        limits,
    }
}

/// The limit to report for a trace that is not complete.
fn partial(trace: &Trace, damaged: u64) -> Option<Limit> {
    let why = sunder_trace::why_partial(trace, damaged)?;
    Some(Limit::PartialTrace { why })
}
