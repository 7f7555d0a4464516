//! The kernel's first event on a task. It lets all CPUs take note before the call
//! returns: ten milliseconds on an idle machine, half a second on a busy one. Whoever
//! starts a program and can't wait has that done by a thread meanwhile; while the event
//! stays open, those that follow are a matter of microseconds.

use crate::machine::perf_event::PerfEvent;
use crate::machine::{may_sample, open_clock};
use std::io;
use std::thread::{Builder, JoinHandle};

/// See the module's head.
#[derive(Debug)]
pub struct FirstEvent {
    opening: JoinHandle<io::Result<PerfEvent>>,
}

impl FirstEvent {
    /// Begins to open it; `None` if the kernel refuses events or there is no thread to
    /// be had, which the probes tell more about.
    pub fn open() -> Option<Self> {
        if !may_sample() {
            return None;
        }
        let builder = Builder::new().name("sunder-first".into());
        let opening = builder.stack_size(64 << 10).spawn(open_clock).ok()?;
        Some(Self { opening })
    }

    /// Whether events are opened without a wait from now on, or refused.
    pub fn is_open(&self) -> bool {
        self.opening.is_finished()
    }
}
