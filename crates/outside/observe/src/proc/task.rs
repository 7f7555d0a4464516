//! `task`: the threads of a process.

use super::folder::{Folder, explain, path};
use crate::ObserveError;
use std::fs;
use std::io;
use sunder_access::{ProcessId, ThreadId};

/// Its threads, by number.
///
/// # Errors
/// If the process is gone or is not ours to look into.
pub fn threads(process: ProcessId) -> Result<Vec<ThreadId>, ObserveError> {
    let listed = listed_threads(process);
    let mut threads = listed.map_err(|source| explain(process, path(process, "task"), source))?;
    threads.sort_unstable();
    if threads.is_empty() {
        return Err(ObserveError::NoSuchProcess(process));
    }
    Ok(threads)
}

/// The processes that this thread has made and that have not been waited for; none if the kernel does not
/// tell (`CONFIG_PROC_CHILDREN`).
pub fn children(process: ProcessId, thread: ThreadId) -> Vec<ProcessId> {
    let text = Folder::Thread(process, thread).text("children");
    let text = text.unwrap_or_default();
    let numbers = text.split_whitespace().map(str::parse);
    numbers.filter_map(Result::ok).map(ProcessId).collect()
}

/// Its threads in the order in which the kernel lists them, zombies too. A thread that
/// lives may be missing: where one ends while the kernel lists them, it may leave out the
/// next.
///
/// # Errors
/// If the list can't be read.
pub fn listed_threads(process: ProcessId) -> io::Result<Vec<ThreadId>> {
    let entries = fs::read_dir(path(process, "task"))?;
    // An entry that cannot be read is a thread that has just ended.
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(ThreadId))
        .collect())
}
