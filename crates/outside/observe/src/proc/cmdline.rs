//! `cmdline`: the arguments of a process.

use super::folder::read;
use crate::ObserveError;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use sunder_access::ProcessId;

/// Its arguments, the program's name first; empty for a zombie.
///
/// # Errors
/// If the process is gone.
pub fn command_line(process: ProcessId) -> Result<Vec<OsString>, ObserveError> {
    let mut text = read(process, "cmdline")?;
    if text.last() == Some(&0) {
        text.pop();
    } else if text.is_empty() {
        return Ok(Vec::new());
    }
    Ok(text
        .split(|&byte| byte == 0)
        .map(|argument| OsString::from_vec(argument.to_vec()))
        .collect())
}
