//! `comm`: the name of a thread.

use super::folder::read;
use crate::ObserveError;
use sunder_access::{ProcessId, ThreadId};

/// The name of a thread, at most 15 bytes.
///
/// # Errors
/// If the thread is gone.
pub fn thread_name(process: ProcessId, thread: ThreadId) -> Result<String, ObserveError> {
    let mut name = read(process, &format!("task/{thread}/comm"))?;
    if name.last() == Some(&b'\n') {
        name.pop();
    }
    Ok(String::from_utf8_lossy(&name).into_owned())
}
