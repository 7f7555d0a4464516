//! The sampler: events on all threads of a process, read as one stream in the
//! order of time.

use super::cheaper::{Again, is_cheaper_on_cpus};
use super::on_cpus::OnCpus;
use super::open::{Recipe, TaskEvents, online_cpus};
use super::plan::{FrequencyPlan, Phase};
use super::stream::Stream;
use super::system;
use super::waited::Wait;
use crate::clock::monotonic_now;
use crate::perf_event::{Ring, poll};
use crate::{Event, ObserveError, PerfRefusal, proc};
use rustix::process::{Resource, Rlimit, setrlimit};
use std::collections::HashSet;
use std::thread;
use std::time::{Duration, Instant};
use sunder_access::{ProcessId, ThreadId, Time};

/// How often `attach` lists the threads again, to find those that began meanwhile.
const ATTACH_PASSES: usize = 20;

/// Descriptors that `attach` leaves unused, for the rest of this process.
const SPARE_DESCRIPTORS: usize = 128;

/// Samples of a process taken by the kernel.
#[derive(Debug)]
pub struct PerfSampler {
    recipe: Recipe,
    /// The events on threads; none if they are on CPUs.
    tasks: Vec<TaskEvents>,
    /// The events on CPUs, if these are used.
    on_cpus: Option<OnCpus>,
    /// Asks whether events on CPUs would cost less; `None` if they are used, or can't be.
    cheaper: Option<Again>,
    stream: Stream,
    /// Index of the first of `tasks` that has not ended, as far as is known.
    watched: usize,
    phase: Phase,
    /// The start of the phase; `None` before the first record.
    since: Option<Instant>,
    /// The current frequency. `samples_in_step` counts samples since it was set.
    hz: u32,
    samples_in_step: u64,
    /// How many samples end the current step of the phase.
    enough: u64,
    unobserved: usize,
}

impl PerfSampler {
    /// Observes a child that has been forked and waits to execute a program ([`crate::launch`]);
    /// the samples begin with the `execve`. The plan's time counts from the first record that
    /// [`Self::drain`] reads. Processes that the program starts are observed only if
    /// `follow_children`.
    ///
    /// # Errors
    /// [`ObserveError::PerfRefused`] with the reason.
    pub fn for_child(
        child: ProcessId,
        plan: FrequencyPlan,
        follow_children: bool,
    ) -> Result<Self, ObserveError> {
        let mut recipe = Recipe::new(child, plan, online_cpus(), follow_children, true);
        let first = recipe
            .open(ThreadId(child.0))?
            .ok_or(ObserveError::NoSuchProcess(child))?;
        let mut sampler = Self::with_first(recipe, first)?;
        // Events on CPUs are for one process.
        let may_change = !follow_children && system::refusal().is_none();
        sampler.cheaper = may_change.then(|| Again::begin(child));
        Ok(sampler)
    }

    /// Observes all threads of a running process, without stopping it. The stream begins with its
    /// mappings and threads, as if they had just begun.
    ///
    /// Each thread takes a descriptor per CPU and frequency. If this process may not open as many
    /// (the soft limit is raised to the hard one), only the plan's last frequency is used. If that
    /// is still too much, the threads that have used the least CPU time are left out
    /// ([`Self::unobserved_threads`]).
    ///
    /// # Errors
    /// [`ObserveError::NoSuchProcess`]; [`ObserveError::PerfRefused`] with the
    /// reason.
    pub fn attach(
        process: ProcessId,
        plan: FrequencyPlan,
        follow_children: bool,
    ) -> Result<Self, ObserveError> {
        let begin = monotonic_now();
        let mut recipe = Recipe::new(process, plan, online_cpus(), follow_children, false);
        let mut threads = proc::threads(process)?;
        let budget = descriptor_budget();
        if threads.len() * recipe.descriptors_per_thread() > budget {
            let last = recipe.plan.last_only();
            recipe.begin_with(last, None);
        }
        let phase = if threads.len() > 1 {
            recipe.plan.phase_of_several()
        } else {
            recipe.plan.first_phase()
        };
        let hz = recipe.plan.frequency(phase, Duration::ZERO);
        recipe.begin_with(recipe.plan.clone(), Some(hz));
        let room = (budget / recipe.descriptors_per_thread().max(1)).max(1);
        if threads.len() > room {
            proc::busiest_first(process, &mut threads);
        }
        let mut known = HashSet::new();
        let mut first = None;
        for &thread in &threads {
            known.insert(thread);
            first = recipe.open(thread)?;
            if first.is_some() {
                break;
            }
        }
        let first = first.ok_or(ObserveError::NoSuchProcess(process))?;
        let mut sampler = Self::with_first(recipe, first)?;
        (sampler.phase, sampler.hz) = (phase, hz);
        sampler.since = Some(Instant::now());
        sampler.add_threads(threads, known, room)?;
        sampler.synthesize(begin)?;
        Ok(sampler)
    }

    /// As [`Self::attach`], by what costs the machine less: events on the process's threads, or on CPUs
    /// where the caller may see what runs there (root, `CAP_PERFMON`) and the process switches between
    /// threads more often than other processes would be interrupted. What is delivered is the same.
    ///
    /// # Errors
    /// Those of [`Self::attach`].
    pub fn attach_cheaply(process: ProcessId, plan: FrequencyPlan) -> Result<Self, ObserveError> {
        let steady = plan.steps().last().map_or(1, |step| step.1);
        let cheaper = system::refusal().is_none() && is_cheaper_on_cpus(process, steady);
        if cheaper && let Some(sampler) = Self::attach_on_cpus(process, plan.clone())? {
            return Ok(sampler);
        }
        Self::attach(process, plan, false)
    }

    /// As [`Self::attach`], by events on CPUs; `None` if the kernel refuses these.
    ///
    /// # Errors
    /// [`ObserveError::NoSuchProcess`].
    pub fn attach_on_cpus(
        process: ProcessId,
        plan: FrequencyPlan,
    ) -> Result<Option<Self>, ObserveError> {
        let begin = monotonic_now();
        let recipe = Recipe::new(process, plan, online_cpus(), false, false);
        let phase = match proc::threads(process)?.len() {
            1 => recipe.plan.first_phase(),
            _ => recipe.plan.phase_of_several(),
        };
        let hz = recipe.plan.frequency(phase, Duration::ZERO);
        let Some((events, rings)) = OnCpus::open(&recipe, hz) else {
            return Ok(None);
        };
        let mut sampler = Self::new(recipe, Vec::new(), Some(events), rings);
        (sampler.phase, sampler.hz) = (phase, hz);
        sampler.enough = sampler.recipe.plan.enough(phase, Duration::ZERO);
        sampler.since = Some(Instant::now());
        sampler.synthesize(begin)?;
        Ok(Some(sampler))
    }

    fn with_first(recipe: Recipe, first: TaskEvents) -> Result<Self, ObserveError> {
        let rings = first.map_rings()?;
        Ok(Self::new(recipe, vec![first], None, rings))
    }

    fn new(
        recipe: Recipe,
        tasks: Vec<TaskEvents>,
        on_cpus: Option<OnCpus>,
        rings: Vec<Ring>,
    ) -> Self {
        let phase = recipe.plan.first_phase();
        Self {
            phase,
            enough: recipe.plan.enough(phase, Duration::ZERO),
            hz: recipe.plan.frequency(phase, Duration::ZERO),
            recipe,
            tasks,
            on_cpus,
            cheaper: None,
            stream: Stream::new(rings),
            watched: 0,
            since: None,
            samples_in_step: 0,
            unobserved: 0,
        }
    }

    /// Whether the events are on CPUs, not on the process's threads.
    pub const fn is_on_cpus(&self) -> bool {
        self.on_cpus.is_some()
    }

    /// Opens events on `threads` and on threads that begin meanwhile, until a listing shows no new
    /// ones. A thread that an observed thread has started inherits its events and must not get them
    /// again; the kernel has reported its start.
    fn add_threads(
        &mut self,
        threads: Vec<ThreadId>,
        mut known: HashSet<ThreadId>,
        room: usize,
    ) -> Result<(), ObserveError> {
        let mut new = threads;
        for _ in 0..ATTACH_PASSES {
            new.retain(|thread| !known.contains(thread));
            for &thread in &new {
                known.insert(thread);
                self.add_thread(thread, room)?;
            }
            new = proc::threads(self.recipe.process)?;
            new.retain(|thread| !known.contains(thread));
            if new.is_empty() {
                break;
            }
            // The kernel lists a thread a moment before it reports its start.
            thread::sleep(Duration::from_millis(2));
            self.collect();
            known.extend(self.stream.pending().filter_map(|event| match event {
                Event::ThreadStart { thread, .. } => Some(*thread),
                _ => None,
            }));
        }
        Ok(())
    }

    fn add_thread(&mut self, thread: ThreadId, room: usize) -> Result<(), ObserveError> {
        if self.tasks.len() >= room {
            self.unobserved += 1;
            return Ok(());
        }
        match self.recipe.open(thread) {
            Ok(Some(events)) => {
                events.redirect(&self.tasks[0].sets[0], 0)?;
                self.tasks.push(events);
            }
            Ok(None) => {}
            // Other code of this process has used descriptors that were counted on.
            Err(ObserveError::PerfRefused(PerfRefusal::Descriptors { .. })) => {
                self.unobserved += 1;
            }
            Err(other) => return Err(other),
        }
        Ok(())
    }

    /// Puts the existing threads and mappings at the front of the stream.
    fn synthesize(&mut self, time: Time) -> Result<(), ObserveError> {
        let process = self.recipe.process;
        let parent = proc::status(process).map_or(ProcessId(0), |status| status.parent);
        let mut events = Vec::new();
        for thread in proc::threads(process)? {
            events.push(Event::ThreadStart {
                process,
                parent: if thread.0 == process.0 {
                    parent
                } else {
                    process
                },
                thread,
                time,
            });
            if let Ok(name) = proc::thread_name(process, thread) {
                events.push(Event::ThreadName {
                    process,
                    thread,
                    time,
                    name,
                    exec: false,
                });
            }
        }
        let mappings = proc::mappings(process)?;
        events.extend(mappings.iter().map(|mapping| Event::Map {
            process,
            time,
            mapping: mapping.clone(),
        }));
        self.stream.put_first(time, events);
        Ok(())
    }

    /// The observed process.
    pub fn process(&self) -> ProcessId {
        self.recipe.process
    }

    /// The current sampling frequency, in samples per second of a thread's CPU time.
    pub const fn frequency(&self) -> u32 {
        self.hz
    }

    /// A line is in doubt: begins the plan's steps for that, unless they have begun.
    pub fn alert(&mut self) {
        if self.phase != Phase::Alert {
            self.enter(Phase::Alert);
        }
    }

    /// For how long a line has been in doubt; `None` if none is. Under a plan without calm steps,
    /// since the start.
    pub fn alerted(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.phase == Phase::Alert);
        since.map(|since| since.elapsed())
    }

    /// For how long the program has had several threads without a line in doubt; `None` if not.
    pub fn calm(&self) -> Option<Duration> {
        let since = self.since.filter(|_| self.phase == Phase::Calm);
        since.map(|since| since.elapsed())
    }

    /// How many threads [`Self::attach`] could not observe for lack of descriptors.
    pub fn unobserved_threads(&self) -> usize {
        self.unobserved
    }

    /// How many samples had no 64-bit user registers, as those of 32-bit programs.
    pub const fn samples_without_registers(&self) -> u64 {
        self.stream.without_registers()
    }

    /// Passes on all events, in the order of time, and changes the frequency when the plan says so
    /// and there are enough samples of the old one. The last millisecond waits for the next call,
    /// because earlier records may still arrive.
    ///
    /// Not observed: time in the kernel, and a thread's time before its first sample, which comes
    /// after a whole period of CPU time on one CPU. A thread that ends sooner is never sampled.
    pub fn drain(&mut self, sink: &mut dyn FnMut(Event)) {
        let settled = Stream::settled();
        self.collect();
        self.follow_plan();
        self.change_to_cpus();
        self.stream.deliver(settled, sink);
    }

    /// Samples by events on CPUs from now on, if these cost less by now: of a server whose threads wait and
    /// go on thousands of times a second, the kernel has to switch all events on threads as often.
    fn change_to_cpus(&mut self) {
        let hz = self.hz;
        if !self
            .cheaper
            .as_mut()
            .is_some_and(|asks| asks.is_cheaper(hz))
        {
            return;
        }
        self.cheaper = None;
        if let Some((events, rings)) = OnCpus::open(&self.recipe, hz) {
            self.on_cpus = Some(events);
            self.tasks.clear();
            self.collect();
            self.stream.replace(rings);
        }
    }

    /// Passes on all events that are left.
    pub fn finish(&mut self, sink: &mut dyn FnMut(Event)) {
        self.collect();
        self.stream.deliver(Time(u64::MAX), sink);
    }

    fn collect(&mut self) {
        let only = self.recipe.process;
        let all = self.recipe.follow_children;
        let on_cpus = &mut self.on_cpus;
        let wanted = |event: &Event| {
            let wanted = all || concerns(event, only);
            match on_cpus {
                Some(on_cpus) if wanted => {
                    on_cpus.note(event);
                    !on_cpus.is_anothers()
                }
                _ => wanted,
            }
        };
        self.samples_in_step += self.stream.collect(wanted);
    }

    fn follow_plan(&mut self) {
        if self.since.is_none() && self.stream.pending().next().is_some() {
            self.since = Some(Instant::now());
        }
        if self.phase == Phase::Alone && self.has_company() {
            self.enter(self.recipe.plan.phase_of_several());
        }
        let Some(since) = self.since else { return };
        let plan = &self.recipe.plan;
        let wanted = plan.frequency(self.phase, since.elapsed());
        if wanted != self.hz && self.samples_in_step >= self.enough {
            self.change(wanted);
            self.enough = self.recipe.plan.enough(self.phase, since.elapsed());
        }
    }

    /// Whether the records show more than one thread.
    fn has_company(&self) -> bool {
        let first = self.recipe.process.0;
        let starts =
            |event: &Event| matches!(event, Event::ThreadStart { thread, .. } if thread.0 != first);
        self.stream.pending().any(starts)
    }

    fn enter(&mut self, phase: Phase) {
        self.phase = phase;
        self.since = Some(Instant::now());
        let plan = &self.recipe.plan;
        let hz = plan.frequency(phase, Duration::ZERO);
        self.enough = plan.enough(phase, Duration::ZERO);
        self.change(hz);
    }

    fn change(&mut self, hz: u32) {
        if let Some(on_cpus) = &self.on_cpus {
            on_cpus.set_frequency(hz);
        }
        let (from, to) = (self.recipe.set_of(self.hz), self.recipe.set_of(hz));
        if from != to {
            for task in &self.tasks {
                task.switch(from, to);
            }
        }
        self.hz = hz;
        self.samples_in_step = 0;
    }

    /// Sleeps until a ring has records to drain, all observed threads have ended, or `timeout` is
    /// over.
    ///
    /// # Errors
    /// [`ObserveError::System`] if `poll` fails.
    pub fn wait(&mut self, timeout: Duration) -> Result<Wait, ObserveError> {
        if let Some(on_cpus) = &self.on_cpus {
            return on_cpus.wait(timeout);
        }
        let deadline = Instant::now() + timeout;
        while let Some(task) = self.tasks.get(self.watched) {
            let left = deadline.saturating_duration_since(Instant::now());
            let polled =
                poll(task.sets[0].iter(), left).map_err(|source| ObserveError::System {
                    doing: "wait for samples",
                    source,
                })?;
            if polled.ended {
                self.watched += 1;
            } else if polled.ready {
                return Ok(Wait::Ready);
            } else {
                return Ok(Wait::TimedOut);
            }
        }
        Ok(Wait::Ended)
    }
}

/// Whether an event belongs to `process`, or to the observer itself.
fn concerns(event: &Event, only: ProcessId) -> bool {
    event.process().is_none_or(|process| process == only)
}

/// How many more descriptors this process may open, after raising its soft
/// limit to the hard one.
fn descriptor_budget() -> usize {
    let limit = || proc::own_limit(libc::RLIMIT_NOFILE);
    if let Some((_, hard)) = limit() {
        // Affects this process and its later children, never the observed process.
        let raised = Rlimit {
            current: Some(hard),
            maximum: Some(hard),
        };
        let _ = setrlimit(Resource::Nofile, raised);
    }
    let limit = limit().map_or(u64::MAX, |(soft, _)| soft);
    let used = std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    (limit as usize).saturating_sub(used + SPARE_DESCRIPTORS)
}
