//! The first perf event on a machine. For it, the kernel synchronises all CPUs before the call
//! returns: ten milliseconds on an idle machine, half a second on a busy one. A thread opens it
//! while the target is being started; as long as it stays open, further events take
//! microseconds.

use crate::machine::{may_sample, open_clock};
use crate::perf_event::PerfEvent;
use std::io;
use std::thread::{Builder, JoinHandle};

/// The thread that opens the event. See the module's head.
#[derive(Debug)]
pub struct FirstEvent {
    opening: JoinHandle<io::Result<PerfEvent>>,
}

impl FirstEvent {
    /// Begins to open the event. `None` if the kernel refuses events or a thread; the probes tell
    /// the reason.
    pub fn open() -> Option<Self> {
        if !may_sample() {
            return None;
        }
        let builder = Builder::new().name("sunder-first".into());
        let opening = builder.stack_size(64 << 10).spawn(open_clock).ok()?;
        Some(Self { opening })
    }

    /// Whether the event is open, so that others open without delay, or was refused.
    pub fn is_open(&self) -> bool {
        self.opening.is_finished()
    }
}
