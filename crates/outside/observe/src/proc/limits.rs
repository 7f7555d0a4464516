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
