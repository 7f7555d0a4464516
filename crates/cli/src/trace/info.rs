//! `sunder trace info`: prints a summary of a trace.

use crate::destination::print;
use crate::output::note;
use anyhow::Result;
use std::collections::BTreeSet;
use std::fmt::Write;
use std::path::Path;
use sunder_findings::Shown;
use sunder_trace::Trace;
use sunder_trace::meta::Reason;

/// Prints a summary.
///
/// # Errors
/// If the file is not a trace, or standard output fails.
pub fn run(file: &Path) -> Result<u8> {
    let trace = Trace::open(file)?;
    let damaged = trace.verify();
    print(&summary(&trace)?)?;
    if let Some(sentence) = sunder_trace::damage(&trace, damaged) {
        note(&sentence);
    }
    Ok(0)
}

/// How the recording ended, if the trace says it.
fn ended(trace: &Trace) -> Option<String> {
    Some(match trace.end()?.reason {
        Reason::Exit => "the program's exit".to_owned(),
        Reason::Exec => "the program executed another one".to_owned(),
        Reason::Stopped => "it was stopped".to_owned(),
        Reason::Abort => "the program aborted".to_owned(),
        _ => return None,
    })
}

fn summary(trace: &Trace) -> Result<String, std::fmt::Error> {
    let header = trace.header();
    let counts = trace.summary();
    let mut text = String::new();
    writeln!(text, "program   {}", Shown(&header.program))?;
    writeln!(text, "command   {}", Shown(&header.arguments.join(" ")))?;
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
    if let Some(how) = ended(trace) {
        writeln!(text, "ended     {how}")?;
    }
    writeln!(text, "stacks    {}", trace.stacks().count())?;
    // All modules that were ever loaded.
    let lists = trace.modules().iter().flat_map(|(_, list)| list);
    let modules: BTreeSet<(u64, &str)> = lists.map(|m| (m.base, m.path.as_str())).collect();
    writeln!(text, "modules   {}", modules.len())?;
    for (base, path) in modules {
        writeln!(text, "module {base:#x}: {}", Shown(path))?;
    }
    for thread in trace.threads() {
        writeln!(
            text,
            "thread {}: tid {}, {} events",
            thread.index, thread.tid, thread.events
        )?;
    }
    Ok(text)
}
