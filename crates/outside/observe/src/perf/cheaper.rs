//! Which events cost less: those on each thread of a process, which the kernel has to switch whenever the
//! threads take turns, or one on each CPU, whose interrupts take time from other processes too. Decided by
//! a short look at what runs, or by looks now and then. Reads `/proc`; opens nothing.

use crate::proc;
use std::time::{Duration, Instant};
use sunder_access::ProcessId;

/// What a switch from or to a thread with events takes more than without, in ns. Measured on a virtual
/// machine of 2 CPUs: 1,800 in the median of a busy machine, 2,900 at least (two threads that send each
/// other bytes through pipes on one CPU; [observe.md](../../../../../docs/design/observe.md)).
const SWITCH_NS: f64 = 2_000.0;
/// What a sample takes from the thread that it interrupts, in ns; measured on the same machine
/// ([watch.md](../../../../../docs/design/watch.md)).
const INTERRUPT_NS: f64 = 17_000.0;
/// For how long it is looked.
const LOOK: Duration = Duration::from_millis(100);
/// Pause between two looks at a process that is being observed.
const PAUSE: Duration = Duration::from_millis(500);
/// With fewer switches a second the events stay where they are: what they cost can't be noticed.
const LEAST_SWITCHES: f64 = 2_000.0;
/// One part of so many of the time goes into these looks.
const TO_LOOK: u32 = 500;
/// A process with more threads is not asked: so many events on threads would take too many descriptors.
const MANY_THREADS: usize = 512;

/// What ran while it was looked.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Ran {
    /// Switches of the process's threads a second.
    switches: f64,
    /// How many CPUs other processes kept busy.
    others: f64,
}

/// What had run by some moment.
#[derive(Clone, Copy, Debug)]
struct Until {
    at: Instant,
    own: proc::Use,
    /// CPU time of everything on the machine, in clock ticks.
    busy: u64,
}

impl Until {
    fn now(process: ProcessId) -> Option<Self> {
        Some(Self {
            at: Instant::now(),
            own: proc::use_of(process)?,
            busy: proc::busy_ticks()?,
        })
    }

    /// What ran from `before` until this moment.
    fn since(&self, before: &Self) -> Ran {
        let seconds = self.at.duration_since(before.at).as_secs_f64().max(1e-3);
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let busy = self.busy.saturating_sub(before.busy) as f64 / ticks;
        let own = self.own.run.saturating_sub(before.own.run).as_secs_f64();
        Ran {
            switches: self.own.switches.saturating_sub(before.own.switches) as f64 / seconds,
            others: ((busy - own) / seconds).max(0.0),
        }
    }
}

/// Whether one event on each CPU that samples `hz` times a second costs the machine less than events on all
/// threads of the process do. Takes a tenth of a second.
pub(super) fn is_cheaper_on_cpus(process: ProcessId, hz: u32) -> bool {
    match proc::threads(process) {
        Ok(threads) if threads.len() > MANY_THREADS => return true,
        Ok(_) => {}
        Err(_) => return false,
    }
    let Some(before) = Until::now(process) else {
        return false;
    };
    std::thread::sleep(LOOK);
    Until::now(process).is_some_and(|after| is_cheaper(after.since(&before), hz))
}

/// The same question, asked again and again of a process that is being observed, without waiting.
#[derive(Debug)]
pub(super) struct Again {
    process: ProcessId,
    /// The effective user at the start. If the process goes on with another one's rights, the kernel ends
    /// the events on its threads, and there must be no others.
    user: Option<u32>,
    last: Option<Until>,
    next: Instant,
}

impl Again {
    /// A first answer comes after two pauses.
    pub(super) fn begin(process: ProcessId) -> Self {
        Self {
            process,
            user: effective_user(process),
            last: None,
            next: Instant::now() + PAUSE,
        }
    }

    /// Whether events on CPUs that sample `hz` times a second would cost less, by what ran since the last
    /// call that looked. Most calls do not look: a look reads two files for each thread.
    pub(super) fn is_cheaper(&mut self, hz: u32) -> bool {
        let begun = Instant::now();
        if begun < self.next {
            return false;
        }
        let before = match proc::threads(self.process) {
            Ok(threads) if threads.len() > 1 => self.last.take(),
            _ => None,
        };
        let now = Until::now(self.process);
        let ran = before.zip(now).map(|(before, now)| now.since(&before));
        let cheaper = ran.is_some_and(|ran| ran.switches >= LEAST_SWITCHES && is_cheaper(ran, hz));
        self.last = now;
        self.next = Instant::now() + PAUSE.max(begun.elapsed() * TO_LOOK);
        cheaper && self.user.is_some() && effective_user(self.process) == self.user
    }
}

fn effective_user(process: ProcessId) -> Option<u32> {
    Some(proc::status(process).ok()?.effective_user)
}

fn is_cheaper(ran: Ran, hz: u32) -> bool {
    ran.switches * SWITCH_NS > ran.others * f64::from(hz) * INTERRUPT_NS
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_switches_often_is_sampled_by_cpu_unless_many_others_run() {
        let at = |switches, others| is_cheaper(Ran { switches, others }, 99);
        // A server beside its clients: 10,000 switches a second take 20 ms, 99 interrupts 1.7 ms.
        assert!(at(10_000.0, 1.0));
        // The same beside 63 busy CPUs: 106 ms.
        assert!(!at(10_000.0, 63.0));
        // Threads that compute and hardly ever wait.
        assert!(!at(20.0, 1.0));
        // Nobody else: nothing is taken from others.
        assert!(at(20.0, 0.0));
        assert!(!at(0.0, 0.0));
    }

    #[test]
    fn a_process_that_is_not_there_is_not_sampled_by_cpu() {
        // Above the largest possible number of a process, 2^22.
        assert!(!is_cheaper_on_cpus(ProcessId(1 << 23), 99));
    }
}
