//! Live PMU memory events of a process, with the same calls as the default sampler: open, wait,
//! drain. Called by the program where `discover` found events; it must not stop or change the
//! target.
//!
//! No machine that this was developed on has such a PMU: this code has never opened the hardware's
//! events. Parsing of records, rings and following of threads are tested with software events
//! instead.

use super::access_of;
use super::events::{self, MemoryEvent};
use crate::clock::monotonic_now;
use crate::machine::Machine;
use crate::perf_event::{
    Attr, EventTarget, Fields, Inodes, PerfEvent, Record, Records, Ring, SampleLayout, event_of,
    kernel, poll,
};
use crate::{Event, ObserveError, PerfRefusal, Wait, proc};
use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::time::Duration;
use sunder_access::{ProcessId, ThreadId, Time};

/// The fields of every sample. `IDENTIFIER` tells apart the events that share a ring.
const LAYOUT: SampleLayout = SampleLayout {
    sample_type: (kernel::PERF_SAMPLE_IDENTIFIER
        | kernel::PERF_SAMPLE_IP
        | kernel::PERF_SAMPLE_TID
        | kernel::PERF_SAMPLE_TIME
        | kernel::PERF_SAMPLE_ADDR
        | kernel::PERF_SAMPLE_CPU
        | kernel::PERF_SAMPLE_PERIOD
        | kernel::PERF_SAMPLE_WEIGHT
        | kernel::PERF_SAMPLE_DATA_SRC) as u64,
    read_format: 0,
    branch_sample_type: 0,
    user_registers: 0,
};

/// Records younger than this wait for the next drain: an older one may not have arrived in another
/// CPU's ring yet.
const SETTLE: Duration = Duration::from_millis(1);

/// Pages of a ring: some 2,900 samples.
const RING_PAGES: usize = 64;
const LEAST_RING_PAGES: usize = 8;

/// How often `attach` lists the threads again, to find those that began meanwhile.
const ATTACH_PASSES: usize = 20;

/// The ring for the records of all events of one CPU.
#[derive(Debug)]
struct CpuRing {
    cpu: u32,
    owner: PerfEvent,
    ring: Ring,
}

/// Memory accesses of a process, sampled by the hardware.
#[derive(Debug)]
pub struct PmuSampler {
    process: ProcessId,
    follow_children: bool,
    events: Vec<MemoryEvent>,
    frequency: u32,
    cpus: Vec<u32>,
    rings: Vec<CpuRing>,
    /// All other events; they count as long as they are open.
    open: Vec<PerfEvent>,
    /// Index in `events` by the identifier in a record.
    by_id: HashMap<u64, usize>,
    pending: Vec<(Time, Event)>,
    discarded: u64,
    inodes: Inodes,
}

impl PmuSampler {
    /// Observes a child that waits to execute a program, from its `execve` on, with `frequency`
    /// samples per second of CPU time for each event.
    ///
    /// # Errors
    /// [`ObserveError::PerfRefused`] if there are no memory events or the kernel refuses them.
    pub fn for_child(
        child: ProcessId,
        frequency: u32,
        follow_children: bool,
    ) -> Result<Self, ObserveError> {
        Self::open_on(child, machine_events(), frequency, follow_children, true)
    }

    /// Observes a running process. Existing mappings are not reported: read them with
    /// [`proc::mappings`].
    ///
    /// # Errors
    /// As [`for_child`](Self::for_child), and [`ObserveError::NoSuchProcess`].
    pub fn attach(
        process: ProcessId,
        frequency: u32,
        follow_children: bool,
    ) -> Result<Self, ObserveError> {
        Self::open_on(process, machine_events(), frequency, follow_children, false)
    }

    fn open_on(
        process: ProcessId,
        events: Vec<MemoryEvent>,
        frequency: u32,
        follow_children: bool,
        on_exec: bool,
    ) -> Result<Self, ObserveError> {
        if events.is_empty() {
            let errno = libc::ENOENT;
            return Err(PerfRefusal::Unsupported { errno }.into());
        }
        let online = Machine::read().online;
        let mut sampler = Self {
            process,
            follow_children,
            events,
            frequency: frequency.max(1),
            cpus: online.iter().map(|cpu| cpu.number).collect(),
            rings: Vec::new(),
            open: Vec::new(),
            by_id: HashMap::new(),
            pending: Vec::new(),
            discarded: 0,
            inodes: Inodes::default(),
        };
        if on_exec {
            sampler.add_thread(ThreadId(process.0), true)?;
        } else {
            sampler.attach_threads()?;
        }
        if sampler.rings.is_empty() {
            return Err(ObserveError::NoSuchProcess(process));
        }
        Ok(sampler)
    }

    /// Opens events on all threads. A thread that begins meanwhile inherits them if its creator was
    /// already observed, and then the kernel reports its start.
    fn attach_threads(&mut self) -> Result<(), ObserveError> {
        let mut known = Vec::new();
        for _ in 0..ATTACH_PASSES {
            self.collect();
            known.extend(self.pending.iter().filter_map(|(_, event)| match event {
                Event::ThreadStart { thread, .. } => Some(*thread),
                _ => None,
            }));
            let mut new = proc::threads(self.process)?;
            new.retain(|thread| !known.contains(thread));
            if new.is_empty() {
                break;
            }
            for thread in new {
                known.push(thread);
                self.add_thread(thread, false)?;
            }
        }
        Ok(())
    }

    /// Opens all events on one thread. A thread that has ended is left out.
    fn add_thread(&mut self, thread: ThreadId, on_exec: bool) -> Result<(), ObserveError> {
        for cpu in self.cpus.clone() {
            // The first event of each CPU reports mappings, names and threads for all events.
            let mut start = StartMode {
                on_exec,
                reports: true,
            };
            for index in 0..self.events.len() {
                let elsewhere = |cpus: &Vec<u32>| !cpus.contains(&cpu);
                if self.events[index].cpus.as_ref().is_some_and(elsewhere) {
                    continue;
                }
                let place = EventTarget::ThreadOnCpu(thread.0, cpu);
                match self.open_event(index, place, start) {
                    Ok(opened) => self.keep(cpu, index, opened, start)?,
                    Err(error) if error.raw_os_error() == Some(libc::ESRCH) => return Ok(()),
                    Err(error) => {
                        return Err(self.refusal(&self.events[index], &error).into());
                    }
                }
                start.reports = false;
            }
        }
        Ok(())
    }

    fn refusal(&self, event: &MemoryEvent, error: &io::Error) -> PerfRefusal {
        let errno = error.raw_os_error().unwrap_or(0);
        match errno {
            // An event that cannot exclude the kernel needs more rights than the process's owner
            // has, so its refusal does not mean that the process belongs to another user.
            libc::EACCES if !event.filters_kernel => PerfRefusal::Other { errno },
            _ => PerfRefusal::from_errno(errno, self.process),
        }
    }

    /// Opens one event with its leader, as precisely as the PMU can.
    fn open_event(
        &mut self,
        index: usize,
        place: EventTarget,
        start: StartMode,
    ) -> io::Result<OpenedEvent> {
        let event = &self.events[index];
        // A kernel before Linux 5.13 does not know `inherit_thread`; records of children are then
        // left out when they are read.
        let threads_only: &[bool] = if self.follow_children {
            &[false]
        } else {
            &[true, false]
        };
        let mut refused = io::ErrorKind::Unsupported.into();
        for precise in (event.precise.min(1)..=event.precise).rev() {
            for &threads_only in threads_only {
                let mut attr = self.sampling(event, start);
                attr.set_precise_ip(precise.into());
                attr.set_inherit_thread(threads_only.into());
                match open_pair(event, attr, place) {
                    Ok(opened) => {
                        // The next threads and CPUs need not try the refused precision.
                        self.events[index].precise = precise;
                        return Ok(opened);
                    }
                    Err(error) => match error.raw_os_error() {
                        Some(libc::EINVAL | libc::EOPNOTSUPP) => refused = error,
                        _ => return Err(error),
                    },
                }
            }
        }
        Err(refused)
    }

    fn sampling(&self, event: &MemoryEvent, start: StartMode) -> Attr {
        let mut attr = event.attr;
        attr.sample_freq = self.frequency.into();
        attr.sample_type = LAYOUT.sample_type;
        attr.set_freq(1);
        attr.set_inherit(1);
        attr.set_sample_id_all(1);
        attr.set_enable_on_exec(start.on_exec.into());
        if !event.filters_kernel {
            attr.set_exclude_kernel(0);
            attr.set_exclude_hv(0);
        }
        if start.reports {
            attr.report_tasks();
        }
        attr
    }

    /// Connects an opened event to its CPU's ring and starts it.
    fn keep(
        &mut self,
        cpu: u32,
        index: usize,
        opened: OpenedEvent,
        start: StartMode,
    ) -> Result<(), ObserveError> {
        let system = |doing| move |source| ObserveError::System { doing, source };
        let OpenedEvent { leader, event } = opened;
        let id = event.id().map_err(system("identify a PMU event"))?;
        self.by_id.insert(id, index);
        let own_ring = match self.rings.iter().find(|ring| ring.cpu == cpu) {
            Some(ring) => {
                let joined = event.set_output(&ring.owner);
                joined.map_err(system("direct PMU samples to one ring a CPU"))?;
                None
            }
            None => Some(Ring::map_up_to(&event, RING_PAGES, LEAST_RING_PAGES)?),
        };
        if !start.on_exec {
            for event in leader.iter().chain([&event]) {
                event.enable().map_err(system("start a PMU event"))?;
            }
        }
        self.open.extend(leader);
        match own_ring {
            Some(ring) => self.rings.push(CpuRing {
                cpu,
                owner: event,
                ring,
            }),
            None => self.open.push(event),
        }
        Ok(())
    }

    /// Names of the events in use, as in `perf`.
    pub fn event_names(&self) -> impl Iterator<Item = &str> {
        self.events.iter().map(|event| event.name.as_str())
    }

    /// How many samples were no access of the program to its data.
    pub fn discarded(&self) -> u64 {
        self.discarded
    }

    /// Passes on all events, in the order of time. The last millisecond waits for the next call,
    /// because earlier records may still arrive.
    pub fn drain(&mut self, sink: &mut dyn FnMut(Event)) {
        let settled = monotonic_now().before(SETTLE).0;
        self.collect();
        self.deliver(Time(settled), sink);
    }

    /// Passes on all events that are left.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Event)) {
        self.collect();
        self.deliver(Time(u64::MAX), sink);
    }

    fn deliver(&mut self, until: Time, sink: &mut dyn FnMut(Event)) {
        self.pending.sort_by_key(|(time, _)| *time);
        let settled = self.pending.partition_point(|(time, _)| *time <= until);
        for (_, event) in self.pending.drain(..settled) {
            sink(event);
        }
    }

    fn collect(&mut self) {
        let mut bytes = Vec::new();
        for ring in &mut self.rings {
            ring.ring.take(&mut bytes);
        }
        for record in Records::new(&bytes) {
            self.take(&record);
        }
    }

    fn take(&mut self, record: &Record<'_>) {
        let event = if record.kind == kernel::PERF_RECORD_SAMPLE {
            let access = self.access(record);
            self.discarded += u64::from(access.is_none());
            access
        } else {
            let time = Time(LAYOUT.trailer_time(record.body).unwrap_or(0));
            let event = event_of(record, time, &mut self.inodes);
            event.ok().flatten().map(|event| (time, event))
        };
        let ours = |event: &Event| self.follow_children || event.process() == Some(self.process);
        if let Some((time, event)) = event
            && (ours(&event) || matches!(event, Event::Lost(_)))
        {
            self.pending.push((time, event));
        }
    }

    fn access(&self, record: &Record<'_>) -> Option<(Time, Event)> {
        if !record.is_user() {
            return None;
        }
        let id = Fields(record.body).u64()?;
        let of_hitm_event = self
            .by_id
            .get(&id)
            .is_some_and(|&index| self.events[index].hitm);
        let sample = LAYOUT.parse(record.body)?;
        let (process, access, hitm) = access_of(&sample, 1)?;
        let event = Event::Access {
            process,
            access,
            hitm: hitm || of_hitm_event,
        };
        Some((access.time, event))
    }

    /// Sleeps until a ring has records to drain, the process has ended, or `timeout` is over.
    ///
    /// # Errors
    /// [`ObserveError::System`] if `poll` fails.
    pub fn wait(&mut self, timeout: Duration) -> Result<Wait, ObserveError> {
        let owners = self.rings.iter().map(|ring| &ring.owner);
        let polled = poll(owners, timeout).map_err(|source| ObserveError::System {
            doing: "wait for PMU samples",
            source,
        })?;
        // The rings belong to events of the first thread. When it has ended, others may go on, so
        // only the end of the process counts.
        if polled.ended && !proc::is_alive(self.process) {
            return Ok(Wait::Ended);
        }
        if polled.ended && !polled.ready {
            // From now on poll returns at once.
            std::thread::sleep(timeout.min(Duration::from_millis(10)));
        }
        Ok(if polled.ready {
            Wait::Ready
        } else {
            Wait::TimedOut
        })
    }
}

/// How an event is started.
#[derive(Clone, Copy)]
struct StartMode {
    /// At the next `execve`, not at once.
    on_exec: bool,
    /// Whether it reports mappings, names and threads.
    reports: bool,
}

/// An event, with the leader of its group if it needs one.
struct OpenedEvent {
    leader: Option<PerfEvent>,
    event: PerfEvent,
}

fn open_pair(event: &MemoryEvent, attr: Attr, place: EventTarget) -> io::Result<OpenedEvent> {
    let Some(mut lead) = event.leader else {
        let event = PerfEvent::open(&attr, place)?;
        return Ok(OpenedEvent {
            leader: None,
            event,
        });
    };
    lead.set_inherit(attr.inherit());
    lead.set_inherit_thread(attr.inherit_thread());
    lead.set_enable_on_exec(attr.enable_on_exec());
    let leader = PerfEvent::open(&lead, place)?;
    let event = PerfEvent::open_beside(&attr, place, &leader)?;
    Ok(OpenedEvent {
        leader: Some(leader),
        event,
    })
}

/// The memory events of the machine that this runs on.
pub(crate) fn machine_events() -> Vec<MemoryEvent> {
    events::discover(
        Path::new("/sys/bus/event_source/devices"),
        Path::new("/proc"),
    )
}

/// Opens the events of `found` on the calling thread and closes them again.
///
/// # Errors
/// The kernel's refusal of the first event; `found` must not be empty.
pub(crate) fn try_open(found: Vec<MemoryEvent>) -> Result<String, ObserveError> {
    let thread = crate::own_thread();
    let sampler = PmuSampler::open_on(ProcessId(thread.0), found, 1, false, true)?;
    Ok(sampler.event_names().collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests;
