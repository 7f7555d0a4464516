//! `sunder simulate`: replays a trace on a machine of one's choice and tells why
//! its nodes missed, and whose data it was. Two passes: the first simulates and
//! learns which granules move between nodes for the sake of sharing; the second
//! looks at these alone, byte by byte, so that memory follows what is shared and
//! not the length of the trace.

mod attribute;
mod heap;
mod machine;
mod order;
mod show;

pub use heap::RecordedHeap;
pub use machine::{parse_caches, parse_place};

use crate::args::Simulate;
use crate::detect::own_cpu_seconds;
use crate::output::Output;
use crate::result::{Observed, show_machine};
use crate::status;
use anyhow::{Result, ensure};
use attribute::{Moved, Shares};
use machine::Machine;
use order::Ordered;
use std::time::Instant;
use sunder_coherence::{Outcome, Simulator};
use sunder_findings as findings;
use sunder_observe::machine as real;
use sunder_trace::read::{Filter, Kinds, Trace, What};

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If there is no such trace, or no such machine.
pub fn run(options: &Simulate) -> Result<u8> {
    let output = Output::new(&options.tell, true)?;
    let trace = Trace::open(&options.file)?;
    let machine = Machine::new(options, trace.threads())?;
    let begin = Instant::now();
    let replayed = replay(&trace, &machine)?;
    let seconds = begin.elapsed().as_secs_f64();
    let moved = moved_granules(&replayed.outcome);
    let shares = attribute::attribute(&trace, &machine, &moved)?;
    let result = join(options, &trace, &machine, &replayed, shares, seconds);
    let written = output.write(&result);
    Ok(match output.verdict(&result) {
        Some(found) => found,
        None if written.failed => status::FAILED,
        None => 0,
    })
}

/// What the first pass gave.
struct Replayed {
    outcome: Outcome,
    /// Blocks of the trace that could not be read.
    damaged: u64,
}

fn replay(trace: &Trace, machine: &Machine) -> Result<Replayed> {
    let mut simulator = Simulator::new(machine.config)?;
    let accesses = Filter {
        kinds: Kinds::ACCESSES,
        ..Filter::default()
    };
    let mut events = Ordered::new(trace, machine.order, accesses);
    for event in &mut events {
        if let What::Access { access, .. } = event.what {
            let node = machine.node(event.thread);
            let width = u32::from(access.width);
            simulator.access(node, access.address, width, access.kind, ())?;
        }
    }
    let damaged = events.damaged_blocks();
    let outcome = simulator.finish();
    ensure!(
        outcome.accesses() > 0,
        "{} holds no accesses",
        trace.path().display()
    );
    Ok(Replayed { outcome, damaged })
}

/// The granules that a node missed because another wrote, with what happened on
/// them.
fn moved_granules(outcome: &Outcome) -> Moved {
    outcome
        .lines()
        .filter(|line| line.counts.coherence_misses() > 0)
        .map(|line| (line.line, line.counts))
        .collect()
}

fn join(
    options: &Simulate,
    trace: &Trace,
    machine: &Machine,
    replayed: &Replayed,
    mut shares: Shares,
    seconds: f64,
) -> findings::Findings {
    let header = trace.header();
    let mut command = vec![header.program.clone()];
    command.extend(header.arguments.iter().skip(1).cloned());
    let mut limits = std::mem::take(&mut shares.limits);
    limits.extend(partial(trace, replayed.damaged));
    let here = real::Machine::read();
    let observed = Observed {
        program: findings::Program {
            command,
            path: Some(header.program.clone()),
            exit: None,
        },
        machine: show_machine(&here, machine.config.granule as u32, None),
        run: findings::Run {
            seconds: shares.span.1.since(shares.span.0) as f64 / 1e9,
            observer: "trace".into(),
            threshold_percent: options
                .tell
                .threshold
                .unwrap_or(findings::DEFAULT_THRESHOLD_PERCENT),
            observer_cpu_seconds: own_cpu_seconds(),
            ..findings::Run::default()
        },
        limits,
    };
    let mut result = attribute::finish(shares, &replayed.outcome, machine, trace, observed);
    result.simulation = Some(show::simulation(machine, &replayed.outcome, seconds));
    result
}

/// What to say of a trace that is not whole.
fn partial(trace: &Trace, damaged: u64) -> Option<String> {
    let summary = trace.summary();
    if summary.is_complete() && damaged == 0 {
        return None;
    }
    let why = if !summary.ended {
        "the recording did not come to its end"
    } else {
        "parts of the file are damaged"
    };
    Some(format!(
        "The trace is partial: {why}. What is there was replayed."
    ))
}
