//! Samples a few threads densely for a short while: registers, each with the CPU time that the
//! thread had used by then. They measure a thread's progress.
//!
//! Called by `repair` around a change. Needs perf events, no PMU. Dropping the value must end all
//! sampling. It interprets nothing.

use crate::perf_event::{Attr, EventTarget, PerfEvent, Ring, SampleLayout, USER_REGISTERS, kernel};
use crate::{PerfRefusal, Registers};
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId};

/// The fields of a sample; the count is the thread's CPU time.
const LAYOUT: SampleLayout = SampleLayout {
    sample_type: (kernel::PERF_SAMPLE_TID
        | kernel::PERF_SAMPLE_READ
        | kernel::PERF_SAMPLE_REGS_USER) as u64,
    read_format: 0,
    branch_sample_type: 0,
    user_registers: USER_REGISTERS,
};

/// Pages of a ring: 4 KiB hold some twenty samples, and rings are emptied every few
/// milliseconds.
const PAGES: usize = 4;

/// One sample of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceSample {
    /// CPU time in nanoseconds that the thread had used since sampling began.
    pub cpu_ns: u64,
    /// Its registers.
    pub registers: Registers,
}

/// The sampling of one thread. See the module's head.
#[derive(Debug)]
pub struct Pace {
    thread: ThreadId,
    event: PerfEvent,
    ring: Ring,
}

impl Pace {
    /// Begins to take samples of `thread`, one every `period` nanoseconds of its
    /// CPU time.
    ///
    /// # Errors
    /// If the kernel refuses; also if the thread has ended.
    pub fn begin(
        process: ProcessId,
        thread: ThreadId,
        period: Duration,
    ) -> Result<Self, PerfRefusal> {
        let mut attr = Attr::software(kernel::PERF_COUNT_SW_TASK_CLOCK);
        attr.sample_period = period.as_nanos() as u64;
        attr.sample_type = LAYOUT.sample_type;
        attr.sample_regs_user = LAYOUT.user_registers;
        let refused = |e: std::io::Error| {
            PerfRefusal::from_errno(e.raw_os_error().unwrap_or_default(), process)
        };
        let event = PerfEvent::open(&attr, EventTarget::Thread(thread.0)).map_err(refused)?;
        let ring = Ring::map_up_to(&event, PAGES, 1)?;
        event.enable().map_err(refused)?;
        Ok(Self {
            thread,
            event,
            ring,
        })
    }

    /// The sampled thread.
    pub const fn thread(&self) -> ThreadId {
        self.thread
    }

    /// CPU time in nanoseconds that the thread has used since sampling began; `None` if the kernel
    /// does not tell.
    pub fn cpu_ns(&self) -> Option<u64> {
        self.event.count().ok()
    }

    /// The samples since the last call, in the order of time.
    pub fn take(&mut self) -> Vec<PaceSample> {
        let mut records = Vec::new();
        self.ring.take(&mut records);
        LAYOUT
            .samples(&records)
            .into_iter()
            .filter_map(|sample| {
                Some(PaceSample {
                    cpu_ns: sample.count?,
                    registers: sample.registers?,
                })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hint::black_box;

    /// A thread that counts is seen counting, by its own CPU time.
    #[test]
    fn a_thread_is_seen_at_ascending_times_of_its_own() {
        let own = crate::own_thread();
        let process = ProcessId(std::process::id());
        let mut pace = match Pace::begin(process, own, Duration::from_micros(100)) {
            Ok(pace) => pace,
            Err(refusal) => {
                println!("SKIP: {refusal}");
                return;
            }
        };
        let before = pace.cpu_ns().expect("it counts");
        let mut seen = Vec::new();
        // Its own CPU time ends the loop, so that no load of the machine matters.
        while pace.cpu_ns().expect("it counts") < before + 20_000_000 {
            for n in 0..10_000u64 {
                black_box(n);
            }
            seen.extend(pace.take());
        }
        assert!(seen.len() >= 10, "{}", seen.len());
        assert!(seen.windows(2).all(|two| two[0].cpu_ns < two[1].cpu_ns));
        assert!(seen.iter().all(|s| s.registers.general[4] != 0));
    }
}
