//! `sunder trace info`: what is in a trace.

use crate::output::{note, print};
use anyhow::Result;
use std::fmt::Write;
use std::path::Path;
use sunder_trace::Trace;

/// Prints a summary.
///
/// # Errors
/// If the file is no trace, or standard output fails.
pub fn run(file: &Path) -> Result<u8> {
    let trace = Trace::open(file)?;
    let damaged = trace.verify();
    print(&summary(&trace)?)?;
    if let Some(sentence) = super::damage(&trace, damaged) {
        note(&sentence);
    }
    Ok(0)
}

fn summary(trace: &Trace) -> Result<String, std::fmt::Error> {
    let header = trace.header();
    let counts = trace.summary();
    let mut text = String::new();
    writeln!(text, "program   {}", header.program)?;
    writeln!(text, "command   {}", header.arguments.join(" "))?;
    writeln!(
        text,
        "recorded  {}, process {}, {}-byte lines",
        header.via.name(),
        header.process,
        header.line_size
    )?;
    let each = counts.event_bytes as f64 / counts.events.max(1) as f64;
    writeln!(
        text,
        "size      {} bytes, {} blocks, {each:.3} bytes an event",
        counts.bytes, counts.blocks
    )?;
    writeln!(text, "events    {}", counts.events)?;
    if let Some(end) = trace.end() {
        writeln!(text, "accesses  {}", end.accesses)?;
        writeln!(text, "other     {}", end.others)?;
        writeln!(text, "lost      {}", end.lost)?;
        writeln!(
            text,
            "duration  {:.6} s",
            end.monotonic.saturating_sub(header.monotonic) as f64 / 1e9
        )?;
    }
    writeln!(text, "stacks    {}", trace.stacks().count())?;
    let modules = trace.modules().last().map_or(0, |(_, list)| list.len());
    writeln!(text, "modules   {modules}")?;
    for thread in trace.threads() {
        writeln!(
            text,
            "thread {}: tid {}, {} events",
            thread.index, thread.tid, thread.events
        )?;
    }
    Ok(text)
}
