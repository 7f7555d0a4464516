//! What is wrong with a trace that is not whole, in words. Reads what the trace says of itself.

use crate::meta::State;
use crate::read::Trace;
use std::path::Path;

/// What is wrong with a trace of which so many blocks were found damaged, as a sentence that
/// names the file; `None` if it is whole.
pub fn damage(trace: &Trace, damaged: u64) -> Option<String> {
    let why = why_partial(trace, damaged)?;
    Some(format!(
        "{} is partial: {why}; what is readable was read",
        show(trace.path())
    ))
}

/// Why a trace is not whole, of which so many blocks were found damaged; `None` if it
/// is.
pub fn why_partial(trace: &Trace, damaged: u64) -> Option<String> {
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
        _ => {
            let unread = damaged.saturating_add(summary.damaged_blocks);
            match unread.saturating_add(summary.missing_blocks.max(summary.gaps)) {
                0 => format!(
                    "{} blocks of events begin before the one before them has ended, so times in \
                     them are not right",
                    summary.early_blocks
                ),
                blocks => format!("{blocks} blocks are damaged or missing"),
            }
        }
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
