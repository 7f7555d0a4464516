//! `sunder trace`: records every memory access of a program, and looks at what
//! was recorded.

pub mod cargo;
pub mod compile;
mod dump;
mod emulated;
mod info;
mod progress;
mod record;

use crate::args::{Trace, TraceCommand};
use anyhow::Result;
use std::path::Path;

/// Runs the command; the value is the status to exit with.
///
/// # Errors
/// If a trace can't be read or the program can't be started.
pub fn run(options: &Trace) -> Result<u8> {
    match &options.command {
        Some(TraceCommand::Info { file }) => info::run(file),
        Some(TraceCommand::Dump(options)) => dump::run(options),
        None => record::run(options),
    }
}

/// What is wrong with a trace, in a sentence; `None` if it is whole.
fn damage(trace: &sunder_trace::Trace, damaged: u64) -> Option<String> {
    let why = why_partial(trace, damaged)?;
    Some(format!(
        "{} is partial: {why}; what is readable was read",
        show(trace.path())
    ))
}

/// Why a trace is not whole, of which so many blocks were found damaged; `None` if it
/// is.
pub fn why_partial(trace: &sunder_trace::Trace, damaged: u64) -> Option<String> {
    use sunder_trace::meta::State;
    let summary = trace.summary();
    if summary.is_complete() && damaged == 0 {
        return None;
    }
    Some(match trace.progress() {
        Some(p) if p.state == State::Failed => format!(
            "recording stopped: {}",
            std::io::Error::from_raw_os_error(p.errno as i32)
        ),
        Some(p) if p.state == State::Died => death(p.errno),
        Some(p) if p.state == State::WentOn => format!(
            "it ends where the program was to execute another one; that failed ({}) and the \
             program went on",
            std::io::Error::from_raw_os_error(p.errno as i32)
        ),
        _ if !summary.ended => "it was cut off, as when the program is killed".to_owned(),
        _ => format!(
            "{} blocks are damaged or missing",
            damaged + summary.damaged_blocks + summary.missing_blocks.max(summary.gaps)
        ),
    })
}

/// How the program ended.
fn death(signal: u32) -> String {
    const LAST: &str = "and the last events of each thread were not written";
    if signal == 0 {
        return format!("the program ended around the C library's exit, {LAST}");
    }
    // SAFETY: takes any number; the text is the C library's and stays until the
    // next call in this thread.
    let name = unsafe { std::ffi::CStr::from_ptr(libc::strsignal(signal as i32)) };
    format!(
        "the program was ended by signal {signal} ({}), {LAST}",
        name.to_string_lossy()
    )
}

fn show(path: &Path) -> String {
    path.display().to_string()
}
