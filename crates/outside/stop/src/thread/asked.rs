//! [`Asked`]: a thread that was asked to stop and is still to be waited for. Where there are more
//! threads than CPUs, each stops only when its turn comes; so all are asked before the first is waited
//! for. Called by [`World`](crate::World), and for single threads. Must leave no thread stopped.

use super::pending::has_fault;
use super::{
    LEFT, Stop, Stopped, detach, detach_when_stopped, gone, keep, request, signal_of, traced, wait,
};
use std::io;

/// A thread that was asked to stop. If it is not waited for, it goes on when this is dropped.
#[derive(Debug)]
pub struct Asked {
    thread: i32,
    is_awaited: bool,
}

impl Asked {
    /// Asks a thread to stop; `None` if it can't be asked now, because it has ended or has not yet
    /// stopped after an earlier call.
    ///
    /// # Errors
    /// If the kernel does not allow it, for example because a debugger is attached.
    pub fn ask(thread: i32) -> io::Result<Option<Self>> {
        if LEFT.with_borrow(|left| left.contains(&thread)) {
            // See [`super::sweep`].
            return Ok(None);
        }
        let options = libc::PTRACE_O_TRACESYSGOOD as usize;
        match request(libc::PTRACE_SEIZE, thread, 0, options) {
            Ok(()) => traced(|all| all.push((std::thread::current().id(), thread))),
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
            Err(error) => return Err(error),
        }
        // If this fails the thread is about to end, and its end is waited for; or it is asked again
        // by `sweep`.
        let _ = request(libc::PTRACE_INTERRUPT, thread, 0, 0);
        Ok(Some(Self {
            thread,
            is_awaited: false,
        }))
    }

    /// Waits for the thread, which belongs to `process`.
    pub fn stop(self, process: i32) -> Stop {
        self.stop_if(process, is_by_us)
    }

    /// As [`Self::stop`], also if a signal has stopped the whole process. The thread then stays stopped by that
    /// signal when we let it go.
    pub fn stop_suspended(self, process: i32) -> Stop {
        self.stop_if(process, |status| is_by_us(status) || is_suspended(status))
    }

    fn stop_if(mut self, process: i32, is_good: impl Fn(i32) -> bool) -> Stop {
        self.is_awaited = true;
        let thread = self.thread;
        let Some(status) = stops(thread) else {
            keep(thread);
            return Stop::NotNow;
        };
        if libc::WIFEXITED(status) || libc::WIFSIGNALED(status) {
            gone(thread);
            return if thread == process {
                Stop::Ended(status)
            } else {
                Stop::NotNow
            };
        }
        if !is_good(status) || has_fault(thread) {
            // A signal is about to be delivered, or the whole process is stopped.
            detach(thread, signal_of(status));
            return Stop::NotNow;
        }
        Stopped::read(thread, is_suspended(status))
            .map_or(Stop::NotNow, |stopped| Stop::Stopped(Box::new(stopped)))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.is_awaited {
            detach_when_stopped(self.thread);
        }
    }
}

impl Stopped {
    /// Stops a thread of `process`.
    ///
    /// # Errors
    /// If the kernel does not allow it, for example because a debugger is attached.
    pub fn stop(thread: i32, process: i32) -> io::Result<Stop> {
        let asked = Asked::ask(thread)?;
        Ok(asked.map_or(Stop::NotNow, |asked| asked.stop(process)))
    }
}

/// Waits for a thread that was asked to stop, or for its end. Gives the wait status.
///
/// The kernel can stop a thread between a fault and the signal for it. If we moved the thread or
/// changed its handlers there, the signal would name an instruction that the thread no longer
/// stands at. So the signal is delivered first, and the thread is stopped at the beginning of its
/// handler.
fn stops(thread: i32) -> Option<i32> {
    /// Most faults in a row that are let through.
    const MOST: u32 = 8;
    let mut status = wait(thread)?;
    for _ in 0..MOST {
        if !is_by_us(status) || !has_fault(thread) {
            break;
        }
        // If one of these requests fails the thread has been killed, or stays stopped until `sweep`
        // finds it so.
        let _ = request(libc::PTRACE_CONT, thread, 0, 0);
        status = wait(thread)?;
        if !libc::WIFSTOPPED(status) || status >> 16 != 0 {
            break;
        }
        let signal = libc::WSTOPSIG(status);
        let _ = request(libc::PTRACE_INTERRUPT, thread, 0, 0);
        let _ = request(libc::PTRACE_CONT, thread, 0, signal as usize);
        status = wait(thread)?;
    }
    Some(status)
}

/// Whether a wait status says that a thread stopped because we asked it to.
fn is_by_us(status: i32) -> bool {
    is_stop(status) && libc::WSTOPSIG(status) == libc::SIGTRAP
}

/// Whether a wait status says that a thread stopped because a signal has stopped the whole process.
fn is_suspended(status: i32) -> bool {
    is_stop(status) && libc::WSTOPSIG(status) != libc::SIGTRAP
}

/// Whether it tells of one of these stops.
fn is_stop(status: i32) -> bool {
    libc::WIFSTOPPED(status) && status >> 16 == libc::PTRACE_EVENT_STOP
}
