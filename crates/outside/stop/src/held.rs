//! [`Held`]: some threads of a process, stopped for a moment while the others run. Called by
//! `gain`, always from the same thread. Must not decide which threads are held, or for how long.

use crate::awake::stay_awake;
use crate::thread::{Collector, Stop, Stopped, sweep};
use crate::world::{StopError, has_ended, is_over};
use std::sync::MutexGuard;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId};
use sunder_observe::proc::{self, Folder};

/// How long [`let_go`] waits for threads to stop, so that they can be detached.
const LONGEST: Duration = Duration::from_millis(500);

/// Some threads of a process, stopped. They go on when this is dropped.
pub struct Held {
    /// Field order matters: threads go on before we may be stopped ourselves.
    threads: Vec<Stopped>,
    /// One of the other threads may execute another program meanwhile, which waits until these are
    /// reaped.
    _collector: Collector,
    _awake: MutexGuard<'static, ()>,
}

impl Held {
    /// Stops these threads of `process`; those that have ended are left out.
    ///
    /// # Errors
    /// See [`StopError`]. Threads that were already stopped go on.
    pub fn stop(process: ProcessId, threads: &[ThreadId]) -> Result<Self, StopError> {
        let collector = Collector::start(process.0 as i32).map_err(StopError::Refused)?;
        let mut held = Self {
            threads: Vec::new(),
            _collector: collector,
            _awake: stay_awake(),
        };
        for &thread in threads {
            // A thread's number may be another process's by now.
            if !is_of(process, thread) {
                continue;
            }
            match Stopped::stop(thread.0 as i32, process.0 as i32) {
                // As long as it is stopped, its number is its own.
                Ok(Stop::Stopped(stopped)) if is_of(process, thread) => held.threads.push(*stopped),
                Ok(Stop::Stopped(_)) => {}
                Ok(Stop::Ended(status)) => {
                    has_ended(thread.0 as i32, status);
                    return Err(StopError::Ended);
                }
                _ if is_over(process, thread.0) => {}
                Ok(Stop::NotNow) => return Err(StopError::NotNow),
                Err(error) => return Err(StopError::Refused(error)),
            }
        }
        Ok(held)
    }

    /// The stopped threads.
    pub fn threads(&self) -> &[Stopped] {
        &self.threads
    }
}

fn is_of(process: ProcessId, thread: ThreadId) -> bool {
    proc::state(Folder::Thread(process, thread)).is_ok()
}

/// Lets threads go on that were asked to stop and have not stopped in time. To be called when no
/// more threads are stopped. One that takes longer than half a second goes on when this process
/// ends.
pub fn let_go(process: ProcessId) {
    let begun = Instant::now();
    while crate::thread::has_left() && begun.elapsed() < LONGEST {
        if let Some(status) = sweep(process.0 as i32) {
            has_ended(process.0 as i32, status);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[cfg(test)]
mod tests;
