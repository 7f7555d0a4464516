//! `fd`: what the descriptors of a process lead to.

use super::folder::path;
use std::fs;
use std::io;
use std::path::PathBuf;
use sunder_access::ProcessId;

/// The targets of its descriptors' links; those that can't be read are left out.
///
/// # Errors
/// If the list can't be read.
pub fn links(process: ProcessId) -> io::Result<impl Iterator<Item = PathBuf>> {
    let entries = fs::read_dir(path(process, "fd"))?;
    Ok(entries
        .flatten()
        .filter_map(|entry| fs::read_link(entry.path()).ok()))
}
