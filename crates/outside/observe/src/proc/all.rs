//! The list of all processes, which is `/proc` itself.

use std::fs;
use std::io;
use sunder_access::ProcessId;

/// All processes that this one may see, by number.
///
/// # Errors
/// If the list can't be read.
pub fn processes() -> io::Result<Vec<ProcessId>> {
    let number = |entry: fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let entries = fs::read_dir("/proc")?.flatten().filter_map(number);
    let mut all: Vec<ProcessId> = entries.map(ProcessId).collect();
    all.sort_unstable();
    Ok(all)
}
