//! `timers`: the POSIX timers of a process.

use super::folder::Folder;
use sunder_access::ProcessId;

/// A timer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Timer {
    /// Its signal and the value that comes with it, as `34/0000000000000000`.
    pub signal: String,
    /// Its clock; that of a process's or thread's CPU time is negative.
    pub clock: String,
}

/// Its timers; empty if they can't be read.
pub fn timers(process: ProcessId) -> Vec<Timer> {
    let text = Folder::Process(process).text("timers").unwrap_or_default();
    let mut signal = "";
    let mut timers = Vec::new();
    for line in text.lines() {
        if let Some(new) = line.strip_prefix("signal:") {
            signal = new.trim();
        }
        if let Some(clock) = line.strip_prefix("ClockID:") {
            timers.push(Timer {
                signal: signal.to_owned(),
                clock: clock.trim().to_owned(),
            });
        }
    }
    timers
}
