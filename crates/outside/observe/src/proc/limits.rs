//! `limits`: the resource limits of a process.

use super::folder::Folder;
use std::io;
use sunder_access::ProcessId;

/// Whether it, or somebody who raises its limit, may write files of any size.
///
/// # Errors
/// If its limits can't be read.
pub fn file_size_is_unlimited(process: ProcessId) -> io::Result<bool> {
    let text = Folder::Process(process).text("limits")?;
    let line = text.lines().find(|line| line.starts_with("Max file size"));
    Ok(line.is_some_and(|line| line.contains("unlimited")))
}

/// Whether it may use any amount of CPU time before it gets a signal.
///
/// # Errors
/// If its limits can't be read.
pub fn cpu_time_is_unlimited(process: ProcessId) -> io::Result<bool> {
    let text = Folder::Process(process).text("limits")?;
    let mut lines = text.lines();
    let soft = lines.find_map(|line| line.strip_prefix("Max cpu time"));
    Ok(soft.is_some_and(|soft| soft.trim_start().starts_with("unlimited")))
}
