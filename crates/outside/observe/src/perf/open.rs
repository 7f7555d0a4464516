//! Opens the sampler's events on one thread. There is one per CPU, because the kernel maps no ring
//! for an inherited event that follows its thread over CPUs (`perf_mmap`: EINVAL). And there is one
//! per frequency, because `PERF_EVENT_IOC_PERIOD` does not reach the events of threads that have
//! inherited already, while enabling and disabling does.

use super::plan::{FrequencyPlan, period_ns};
use super::record::LAYOUT;
use crate::perf_event::{Attr, EventTarget, PAGE, PerfEvent, Ring, kernel};
use crate::{ObserveError, PerfRefusal};
use std::io;
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId};

/// Pages of records in a ring. 64 pages hold some 1,400 samples: a third of a second at 4000 Hz.
/// With the control page they take half of the memory that an unprivileged user may lock per CPU
/// (`perf_event_mlock_kb`, 516 KiB), which leaves room for the watchpoints and a second run.
pub(super) const RING_PAGES: usize = 64;
/// Below this a scheduling delay of a tenth of a second loses samples.
const LEAST_RING_PAGES: usize = 8;

/// What all events of a sampler have in common.
#[derive(Clone, Debug)]
pub(super) struct Recipe {
    pub process: ProcessId,
    pub plan: FrequencyPlan,
    pub cpus: Vec<u32>,
    pub follow_children: bool,
    /// Whether the first samples come with the next `execve`, not at once.
    pub on_exec: bool,
    /// Whether this kernel knows `inherit_thread`.
    inherit_thread: bool,
    /// The frequency of each sampling set.
    frequencies: Vec<u32>,
    /// The index of the set that samples first.
    first: usize,
}

/// The events on one thread; `sets[0]` is always enabled and carries all records other than
/// samples.
#[derive(Debug)]
pub(super) struct TaskEvents {
    /// By set, then by CPU.
    pub sets: Vec<Vec<PerfEvent>>,
}

impl Recipe {
    pub(super) fn new(
        process: ProcessId,
        plan: FrequencyPlan,
        cpus: Vec<u32>,
        follow_children: bool,
        on_exec: bool,
    ) -> Self {
        let mut recipe = Self {
            process,
            plan: plan.clone(),
            cpus,
            follow_children,
            on_exec,
            inherit_thread: !follow_children,
            frequencies: Vec::new(),
            first: 0,
        };
        recipe.begin_with(plan, None);
        recipe
    }

    /// Sets the plan and its first frequency: `hz`, or else that with which the plan begins.
    pub(super) fn begin_with(&mut self, plan: FrequencyPlan, hz: Option<u32>) {
        let first = hz.unwrap_or_else(|| plan.frequency(plan.first_phase(), Duration::ZERO));
        self.frequencies = plan.frequencies();
        self.plan = plan;
        self.first = self.set_of(first);
    }

    /// How many descriptors each observed thread takes.
    pub(super) fn descriptors_per_thread(&self) -> usize {
        self.sets() * self.cpus.len()
    }

    fn sets(&self) -> usize {
        match self.frequencies.len() {
            1 => 1,
            frequencies => frequencies + 1,
        }
    }

    /// The index of the set that samples with `hz`.
    pub(super) fn set_of(&self, hz: u32) -> usize {
        if self.sets() == 1 {
            return 0;
        }
        let found = self.frequencies.iter().position(|&f| f == hz);
        found.map_or(0, |at| at + 1)
    }

    fn attributes(&self, set: usize) -> Attr {
        let samples = self.sets() == 1 || set > 0;
        let mut attr = Attr::software(if samples {
            kernel::PERF_COUNT_SW_CPU_CLOCK
        } else {
            kernel::PERF_COUNT_SW_DUMMY
        });
        attr.sample_type = LAYOUT.sample_type;
        attr.sample_regs_user = LAYOUT.user_registers;
        attr.set_inherit(1);
        attr.set_inherit_thread(self.inherit_thread.into());
        attr.set_sample_id_all(1);
        attr.set_watermark(1);
        attr.wakeup_watermark = (RING_PAGES * PAGE / 4) as u32;
        if samples {
            let hz = self.frequencies[set.saturating_sub(1)];
            attr.sample_period = period_ns(hz);
        }
        if set == 0 {
            attr.report_tasks();
        }
        let at_once = !samples || (set == self.first && !self.on_exec);
        attr.set_disabled((!at_once).into());
        attr.set_enable_on_exec((!at_once && set == self.first).into());
        attr
    }

    /// Opens all events on `thread`. `None` if the thread has ended.
    ///
    /// # Errors
    /// The kernel's refusal.
    pub(super) fn open(&mut self, thread: ThreadId) -> Result<Option<TaskEvents>, ObserveError> {
        let mut sets = Vec::with_capacity(self.sets());
        for set in 0..self.sets() {
            let mut events = Vec::with_capacity(self.cpus.len());
            for cpu in self.cpus.clone() {
                match self.open_one(set, thread, cpu) {
                    Ok(event) => events.push(event),
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(None),
                    Err(error) => {
                        let errno = error.raw_os_error().unwrap_or(0);
                        return Err(PerfRefusal::from_errno(errno, self.process).into());
                    }
                }
            }
            sets.push(events);
        }
        Ok(Some(TaskEvents { sets }))
    }

    /// Whether the kernel lets this process observe `thread`. The event is closed again.
    pub(super) fn may_open(&self, thread: ThreadId) -> bool {
        let attr = Attr::software(kernel::PERF_COUNT_SW_DUMMY);
        PerfEvent::open(&attr, EventTarget::Thread(thread.0)).is_ok()
    }

    fn open_one(&mut self, set: usize, thread: ThreadId, cpu: u32) -> io::Result<PerfEvent> {
        let place = EventTarget::ThreadOnCpu(thread.0, cpu);
        let opened = PerfEvent::open(&self.attributes(set), place);
        match opened {
            Err(error) if self.inherit_thread && error.raw_os_error() == Some(libc::EINVAL) => {
                // A kernel before Linux 5.13: the sampler drops the children's records when it
                // reads them.
                self.inherit_thread = false;
                PerfEvent::open(&self.attributes(set), place)
            }
            other => other,
        }
    }
}

impl TaskEvents {
    /// Maps one ring per CPU and sends all events there.
    pub(super) fn map_rings(&self) -> Result<Vec<Ring>, ObserveError> {
        let mut rings = Vec::new();
        for event in &self.sets[0] {
            rings.push(Ring::map_up_to(event, RING_PAGES, LEAST_RING_PAGES)?);
        }
        self.redirect(&self.sets[0], 1)?;
        Ok(rings)
    }

    /// Sends the events of the sets from `first_set` on to the rings of
    /// `owners`, by CPU.
    pub(super) fn redirect(
        &self,
        owners: &[PerfEvent],
        first_set: usize,
    ) -> Result<(), ObserveError> {
        for set in self.sets.iter().skip(first_set) {
            for (event, owner) in set.iter().zip(owners) {
                event
                    .set_output(owner)
                    .map_err(|source| ObserveError::System {
                        doing: "direct perf samples to one ring a CPU",
                        source,
                    })?;
            }
        }
        Ok(())
    }

    /// Stops one set and starts another, for all threads that have inherited them. Errors are
    /// ignored: a thread that has ended needs neither.
    pub(super) fn switch(&self, from: usize, to: usize) {
        for event in &self.sets[from] {
            let _ = event.disable();
        }
        for event in &self.sets[to] {
            let _ = event.enable();
        }
    }
}

/// The CPUs on which a thread can run.
pub(super) fn online_cpus() -> Vec<u32> {
    let cpus = crate::machine::online_cpus();
    if cpus.is_empty() { vec![0] } else { cpus }
}
