//! Makes the result of a trace of the parts into which it was replayed. Here objects and code get
//! their names, as at the end of any other replay, so the recorded program's files should be at hand.

use super::pages::named;
use super::part::{Block, Part};
use crate::options::Simulate;
use crate::simulate::attribute::exact_config;
use crate::simulate::machine::LARGEST_LINE;
use crate::simulate::mappings::mappings_of;
use crate::simulate::pages::findings;
use crate::simulate::price::{Prices, price};
use crate::simulate::show::{self, Tally};
use crate::simulate::{Recorded, observed};
use anyhow::{Context, Result, ensure};
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use sunder_access::{Address, CodeAddress, Granule, ProcessId, ThreadId, Time};
use sunder_findings::{Findings, Limit};
use sunder_objects::HeapBlock;
use sunder_pipeline::{Figures, Follow, FreedBlock, Moved, RecordedHeap, Session};
use sunder_tables::{StackEvent, TraceModule};

/// The result of a trace whose parts are `part` all together. Of `options`, the threshold and whether
/// the result is reproducible count; the machine is that of the part.
///
/// # Errors
/// If buckets are missing, or the part has numbers that no replay gives.
pub fn merge(part: Part, options: &Simulate) -> Result<Findings> {
    let count = part.trace.rows.len() as u32;
    let missing: Vec<String> = (0..count)
        .filter(|bucket| part.buckets.binary_search(bucket).is_err())
        .map(|bucket| format!("{bucket:02}"))
        .collect();
    ensure!(
        missing.is_empty(),
        "of {count} buckets {} are missing, so counts would be too low: {}",
        missing.len(),
        shorten(&missing)
    );
    let machine = part.machine.machine(&part.trace, options)?;
    ensure!(
        part.accesses > 0,
        "the trace of process {} holds no accesses{}",
        part.trace.process,
        if machine.heap_only {
            " to heap objects"
        } else {
            ""
        }
    );
    let (trace, judged) = (&part.trace, &part.judged);
    let granule = Granule::new(machine.config.granule.min(LARGEST_LINE))?;
    let config = exact_config(granule, Time(trace.monotonic))?;
    let judge = judged.found.judge(config);
    let judge = judge.context("a part has a verdict that no replay gives")?;
    let id = ProcessId(trace.process);
    let mut session = Session::recorded(config, Follow::Only(id));
    let process = session.process(id);
    let frames = |frames: &Vec<u64>| frames.iter().copied().map(CodeAddress).collect();
    let sites: HashMap<u32, Vec<CodeAddress>> = judged
        .sites
        .iter()
        .map(|(&site, of)| (site, frames(of)))
        .collect();
    let freed = judged.freed.iter().map(|block| freed_block(block, &sites));
    let figures = Figures {
        accesses: judged.accesses,
        first: judged.found.span.map(|span| Time(span.0)),
        last: judged.found.span.map(|span| Time(span.1)),
        ..Figures::default()
    };
    process.restore(judge, freed.collect(), figures);
    let mut heap = RecordedHeap::new(sites.clone());
    for block in &judged.blocks {
        let thread = ThreadId(block.thread);
        heap.allocated(still(block), block.site, thread, None);
        if block.freed {
            heap.freed(Address(block.address), Time(0), |_| false);
        }
    }
    process.set_blocks(Rc::new(RefCell::new(heap)));
    process.simulated = judged
        .lines
        .iter()
        .map(|(&line, of)| (Address(line), *of))
        .collect();
    let modules: Vec<_> = trace.modules.iter().map(TraceModule::module).collect();
    process.set_mappings(mappings_of(modules.iter()));
    let mut on_pages = Vec::new();
    let mut limits = Vec::new();
    if machine.config.granule > LARGEST_LINE {
        let bytes = machine.config.granule;
        let stacks = sites.into_iter().collect();
        let counted = named(&judged.pages, trace, stacks, bytes, process)?;
        (on_pages, limits) = findings(&counted, process, bytes);
    } else {
        for step in &trace.stacks {
            let event = step.event.event();
            let thread = trace.thread(event.thread);
            if matches!(step.event, StackEvent::Start { .. }) {
                process.threads.started(thread);
            }
            process.recorded_stack(&event, thread);
        }
    }
    let span = (Time(trace.span.0), Time(trace.span.1));
    let recorded = Recorded {
        program: &trace.program,
        arguments: &trace.arguments,
        span,
    };
    limits.extend(trace.partial.clone().map(|why| Limit::PartialTrace { why }));
    let observed = observed(&recorded, options, &machine, limits);
    let prices = Prices {
        granule: machine.config.granule,
        nodes: &part.nodes,
        threads: trace
            .threads
            .iter()
            .map(|thread| (ThreadId(thread.id), machine.node(thread.index)))
            .collect(),
    };
    let mut result = session.finish_priced(span.0, span.1, observed, |findings| {
        findings.append(&mut on_pages);
        for finding in findings {
            finding.confirmed = true;
            price(finding, &prices);
        }
    });
    let seconds = if options.reproducible {
        0.0
    } else {
        part.seconds
    };
    let tally = Tally {
        accesses: part.accesses,
        granules: part.granules,
        nodes: part.nodes.clone(),
    };
    result.simulation = Some(show::simulation(&machine, tally, seconds));
    Ok(result)
}

/// The first of many names.
fn shorten(names: &[String]) -> String {
    const SHOWN: usize = 10;
    let mut shown = names[..names.len().min(SHOWN)].join(", ");
    if names.len() > SHOWN {
        shown.push_str(", …");
    }
    shown
}

fn still(block: &Block) -> Moved {
    Moved {
        from: block.span(),
        to: block.span(),
        shape: None,
    }
}

fn freed_block(block: &Block, sites: &HashMap<u32, Vec<CodeAddress>>) -> FreedBlock {
    FreedBlock {
        block: HeapBlock {
            span: block.span(),
            allocation: sites.get(&block.site).cloned().unwrap_or_default(),
            thread: Some(ThreadId(block.thread)),
            freed: true,
        },
        moved: Some(still(block)),
    }
}
