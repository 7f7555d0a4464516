//! Events for one process that count on CPUs, whatever runs there: the samples of others are dropped when
//! the rings are read. The kernel has nothing to switch when the process's threads take turns, and a
//! new thread costs nothing. Called by the sampler of one process, where [`super::cheaper`] says so.

use super::of_cpu;
use super::open::{RING_PAGES, Recipe};
use super::plan::period_ns;
use super::waited::Wait;
use crate::perf_event::{Attr, EventTarget, PerfEvent, Ring, poll_until};
use crate::{Event, ObserveError, proc};
use rustix::fd::OwnedFd;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId};

/// See the module's head.
#[derive(Debug)]
pub(super) struct OnCpus {
    process: ProcessId,
    /// One for each CPU.
    events: Vec<PerfEvent>,
    /// Readable once all threads of the process have ended.
    end: OwnedFd,
    /// The effective user at the start.
    user: u32,
    /// Whether it executes a program with the rights of another user by now.
    is_anothers: bool,
}

impl OnCpus {
    /// Opens the events, with rings, and begins to sample `hz` times a second on each CPU. `None` if the
    /// kernel refuses that, or would refuse events on the process itself: what a process may not be
    /// asked by its own threads' events, it is not asked by those of CPUs.
    pub(super) fn open(recipe: &Recipe, hz: u32) -> Option<(Self, Vec<Ring>)> {
        let process = recipe.process;
        recipe.may_open(ThreadId(process.0)).then_some(())?;
        let pid = Pid::from_raw(i32::try_from(process.0).ok()?)?;
        let end = pidfd_open(pid, PidfdFlags::empty()).ok()?;
        let user = proc::status(process).ok()?.effective_user;
        let attr = attributes(hz);
        let (mut events, mut rings) = (Vec::new(), Vec::new());
        for &cpu in &recipe.cpus {
            let event = PerfEvent::open(&attr, EventTarget::Cpu(cpu)).ok()?;
            rings.push(Ring::map_up_to(&event, RING_PAGES, RING_PAGES / 8).ok()?);
            events.push(event);
        }
        for event in &events {
            event.enable().ok()?;
        }
        let opened = Self {
            process,
            events,
            end,
            user,
            is_anothers: false,
        };
        Some((opened, rings))
    }

    /// Changes the frequency from the next sample on. An event that refuses it keeps the old one.
    pub(super) fn set_frequency(&self, hz: u32) {
        for event in &self.events {
            let _ = event.set_period(period_ns(hz));
        }
    }

    /// Notes from an event of the process whether it goes on with another user's rights. Events on its own
    /// threads end then, by the kernel.
    pub(super) fn note(&mut self, event: &Event) {
        if matches!(event, Event::ThreadName { exec: true, .. })
            && proc::status(self.process).is_ok_and(|status| status.effective_user != self.user)
        {
            self.is_anothers = true;
        }
    }

    /// Whether samples of the process are to be dropped.
    pub(super) const fn is_anothers(&self) -> bool {
        self.is_anothers
    }

    /// Sleeps until a ring has filled to a quarter, the process has ended, or `timeout` is over.
    ///
    /// # Errors
    /// [`ObserveError::System`] if `poll` fails.
    pub(super) fn wait(&self, timeout: Duration) -> Result<Wait, ObserveError> {
        if self.is_anothers {
            return Ok(Wait::Ended);
        }
        let polled = poll_until(self.events.iter(), &self.end, timeout);
        let polled = polled.map_err(|source| ObserveError::System {
            doing: "wait for samples",
            source,
        })?;
        Ok(match (polled.ended, polled.ready) {
            (true, _) => Wait::Ended,
            (false, true) => Wait::Ready,
            (false, false) => Wait::TimedOut,
        })
    }
}

fn attributes(hz: u32) -> Attr {
    let mut attr = of_cpu::attributes(hz, RING_PAGES);
    attr.report_tasks();
    attr
}
