//! Exit statuses as a shell shows them, which is how the tool hands on its program's.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

/// The number that a shell shows.
pub fn shown(status: ExitStatus) -> i32 {
    let died = status.signal().map(|signal| 128 + signal);
    status.code().or(died).unwrap_or(-1)
}
