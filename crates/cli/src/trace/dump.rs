//! `sunder trace dump`: prints the events of a trace in the order of time, one per line.

use crate::args::{Dump, DumpKind};
use crate::output::note;
use anyhow::{Context, Result};
use std::io::{self, BufWriter, ErrorKind, Write};
use sunder_access::{Address, Kind, Span};
use sunder_trace::read::Kinds;
use sunder_trace::{Event, Filter, Trace, What};

/// Prints the events that pass the filters.
///
/// # Errors
/// If the file is not a trace, or standard output fails.
pub fn run(options: &Dump) -> Result<u8> {
    let trace = Trace::open(&options.file)?;
    let mut events = trace.events(filter(options));
    let mut out = BufWriter::new(io::stdout().lock());
    let start = trace.header().monotonic;
    let limit = options.limit.unwrap_or(u64::MAX);
    let mut printed = 0;
    while printed < limit {
        let Some(event) = events.next() else {
            break;
        };
        if let Err(error) = line(&mut out, &trace, start, &event) {
            return closed(error);
        }
        printed += 1;
    }
    let damaged = events.damaged_blocks();
    if let Err(error) = out.flush() {
        return closed(error);
    }
    if let Some(sentence) = sunder_trace::damage(&trace, damaged) {
        note(&sentence);
    }
    Ok(0)
}

/// A closed pipe is not an error; anything else is.
fn closed(error: io::Error) -> Result<u8> {
    if error.kind() == ErrorKind::BrokenPipe {
        return Ok(0);
    }
    Err(error).context("cannot write to standard output")
}

fn filter(options: &Dump) -> Filter {
    let kinds = options.kind.iter().map(|kind| match kind {
        DumpKind::Read => Kinds::READS,
        DumpKind::Write => Kinds::WRITES,
        DumpKind::Atomic => Kinds::ATOMICS,
        DumpKind::Heap => Kinds::HEAP,
        DumpKind::Thread => Kinds::THREADS,
        DumpKind::Sync => Kinds::SYNC,
        DumpKind::Mark => Kinds::MARKS,
    });
    Filter {
        threads: (!options.thread.is_empty()).then(|| options.thread.clone()),
        range: options
            .range
            .map(|(start, end)| Span::new(Address(start), end - start)),
        kinds: kinds.reduce(Kinds::with).unwrap_or(Kinds::ALL),
    }
}

fn line(out: &mut impl Write, trace: &Trace, start: u64, event: &Event) -> io::Result<()> {
    let time = event.time.0.saturating_sub(start) as f64 / 1e9;
    write!(out, "{time:.9} {} ", event.thread)?;
    match event.what {
        What::Access { access, atomic } => {
            let kind = match (access.kind, atomic) {
                (Kind::Read, false) => "read",
                (Kind::Read, true) => "atomic-read",
                (Kind::Write, false) => "write",
                (Kind::Write, true) => "atomic-write",
                (Kind::Update, _) => "update",
                (Kind::Atomic, _) => "atomic",
            };
            let (address, width) = (access.address, access.width);
            writeln!(out, "{kind} {address} {width} at {}", access.instruction)
        }
        What::Allocate {
            address,
            size,
            stack,
            align,
        } => {
            write!(out, "allocate {address} {size}")?;
            if let Some(align) = align.filter(|&align| align > 1) {
                write!(out, " aligned {align}")?;
            }
            write!(out, " by")?;
            for frame in trace.stack(stack).unwrap_or_default() {
                write!(out, " {frame}")?;
            }
            writeln!(out)
        }
        What::Free { address } => writeln!(out, "free {address}"),
        What::ThreadStart { parent, tid } => writeln!(out, "start tid {tid} by {parent}"),
        What::Stack { span } => writeln!(out, "stack {} {}", span.start, span.len),
        What::Frame {
            stack_pointer,
            returns,
        } => writeln!(out, "frame {stack_pointer} returns to {returns}"),
        What::ThreadEnd => writeln!(out, "end"),
        What::Sync { kind, object } => writeln!(out, "{} {object}", kind.name()),
        What::Mark(number) => writeln!(out, "mark {number}"),
        _ => writeln!(out, "other"),
    }
}
