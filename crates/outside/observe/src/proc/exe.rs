//! `exe`: the file that a process executes.

use super::folder::{explain, path};
use super::living_number;
use crate::ObserveError;
use std::fs;
use std::path::PathBuf;
use sunder_access::ProcessId;

/// The file that it executes; the kernel appends ` (deleted)` if that is gone.
///
/// # Errors
/// If the process is gone or is not ours to look into.
pub fn executable(process: ProcessId) -> Result<PathBuf, ObserveError> {
    let of = |number| fs::read_link(path(number, "exe"));
    // Mostly the first thread lives, and this is asked often.
    let found = of(process).or_else(|error| match living_number(process) {
        living if living == process => Err(error),
        living => of(living),
    });
    found.map_err(|source| explain(process, path(process, "exe"), source))
}
