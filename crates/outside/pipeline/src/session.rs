//! The pipeline from events to findings, for live and recorded data. Fed by `live` and
//! `import`, and asked for the result at the end. It must not wait or print, nor read more of
//! the target than `/proc` shows.

mod claims;
mod copied;
mod executed;
mod finish;
mod keeping;
mod samples;

pub use copied::CopiedCode;

use crate::at_once::AtOnce;
use crate::beside::Beside;
use crate::files::HeldFiles;
use crate::heap::Heap;
use crate::kept::{Keeper, KeptCode, KeptFiles};
use crate::process::Process;
use crate::processes::Processes;
use crate::shared::Shared;
use crate::slots::Held;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use sunder_access::{Address, Granule, Mappings, ProcessId, Time};
use sunder_objects::Memory;
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::machine::TYPICAL_TRANSFER_NS;
use sunder_observe::{Decoded, Decoder, Event, ProcessCode};
use sunder_recording::Step;
use sunder_sharing::Config;

/// All processes of one observation.
pub struct Session {
    config: Config,
    /// The processes whose events count.
    follow: Follow,
    decoder: Decoder,
    decoded: Decoded,
    /// Samples of a live target that wait for its memory to be read; `None` for recorded data.
    held: Option<Held>,
    code: ProcessCode,
    /// The code and the files of a kept run, in place of those of processes.
    kept_code: Option<KeptCode>,
    kept_files: Option<KeptFiles>,
    /// Writes a recording, if there is to be one.
    keeper: Option<Box<Keeper>>,
    processes: Processes,
    /// Images that have ended, by an exec or with their process.
    past: Vec<Process>,
    /// Holds the files open from which names are read.
    files: HeldFiles,
    /// The memory that processes have in common.
    shared: Shared,
    /// The images that loaded the runtime, by process, in the order of time.
    heaps: HashMap<ProcessId, Vec<Rc<Heap>>>,
    /// The same, by the numbers that the registry gave the images.
    images: HashMap<u32, Rc<Heap>>,
    at_once: AtOnce,
    beside: Beside,
    lost: u64,
    /// Processes that a followed process started and that are not followed.
    not_followed: u64,
    /// Whether an event told which program a process executes.
    knows_program: bool,
}

/// The judge's configuration for lines of `line` bytes. `transfer` is the cost of a transfer of
/// a line in ns if it was measured; otherwise a typical one is used.
///
/// # Errors
/// If no coherence granule has that size.
pub fn judge_config(line: u64, transfer: Option<f64>) -> anyhow::Result<Config> {
    let mut config = Config::new(Granule::new(line)?)?;
    config.transfer_ns = transfer.unwrap_or(TYPICAL_TRANSFER_NS);
    Ok(config)
}

/// The processes whose events count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Follow {
    /// Only this process.
    Only(ProcessId),
    /// All processes that have events.
    All,
}

impl Session {
    /// A session without any events yet.
    pub fn new(config: Config, follow: Follow) -> Self {
        Self {
            config,
            follow,
            decoder: Decoder::new(),
            decoded: Decoded::default(),
            held: None,
            code: ProcessCode::new(),
            kept_code: None,
            kept_files: None,
            keeper: None,
            processes: Processes::new(config, false),
            past: Vec::new(),
            files: HeldFiles::default(),
            shared: Shared::new(config),
            heaps: HashMap::new(),
            images: HashMap::new(),
            at_once: AtOnce::default(),
            beside: Beside::default(),
            lost: 0,
            not_followed: 0,
            knows_program: false,
        }
    }

    /// Notes the rights over files of the process that is observed first, which lives and may not
    /// have executed the program yet.
    pub fn begin_with(&mut self, process: ProcessId) {
        let files = Arc::new(ForeignFiles::of(process));
        self.code.begin_with(Arc::clone(&files));
        self.processes.begin_with(files);
    }

    /// A session of processes from a recording. Other processes may have their numbers today.
    pub fn recorded(config: Config, follow: Follow) -> Self {
        Self {
            code: ProcessCode::of_recording(),
            processes: Processes::new(config, true),
            ..Self::new(config, follow)
        }
    }

    /// A process that is about to be claimed, and lives, has these files.
    pub fn lives(&mut self, id: ProcessId, files: ForeignFiles) {
        if self.follows(id) {
            self.note(|| Step::Lives(id.0));
            self.processes.lives(id, files);
        }
    }

    /// A process that is about to be claimed had ended before it was looked at. Whatever has its
    /// number now is not looked at.
    pub fn has_ended_before(&mut self, id: ProcessId) {
        self.processes.has_ended_before(id);
    }

    /// Sets the cost of a line transfer, measured after the run. The cost of time samples is
    /// what they took, so they do not need it earlier.
    pub fn set_transfer(&mut self, nanoseconds: f64) {
        self.note(|| Step::Transfer(nanoseconds));
        self.config.transfer_ns = nanoseconds;
        self.shared.set_transfer(nanoseconds);
        for process in self.past.iter_mut().chain(self.processes.values_mut()) {
            process.judge.set_transfer(nanoseconds);
        }
    }

    /// What debug information answers is looked for in `memory` first, and kept there.
    pub fn remember_in(&mut self, memory: &Arc<dyn Memory>) {
        for process in self.past.iter_mut().chain(self.processes.values_mut()) {
            process.names.set_memory(Arc::clone(memory));
        }
    }

    /// No more debug information is read: data and functions are named by symbols.
    pub fn leave_debug_information(&mut self) {
        for process in self.past.iter_mut().chain(self.processes.values_mut()) {
            process.names.leave_debug_information();
        }
    }

    /// Whether threads were seen to contend for a line, so that a transfer's cost is needed.
    pub fn is_any_line_contended(&self) -> bool {
        let mut all = self.past.iter().chain(self.processes.values());
        all.any(|process| process.judge.is_any_line_contended()) || self.shared.has_any()
    }

    /// Samples of the timer observer that were lost because they were not drained in time.
    pub fn samples_dropped(&self) -> u64 {
        let all = self.heaps.values().flatten();
        all.map(|heap| heap.segment.status().samples_dropped)
            .fold(0, u64::saturating_add)
    }

    /// The process has ended. If it has no events, its heap is dropped.
    pub fn ended(&mut self, id: ProcessId) {
        self.note(|| Step::Ended(id.0));
        let Some(process) = self.processes.get_mut(&id) else {
            return;
        };
        if process.figures.samples + process.figures.accesses == 0
            && let Some(heap) = process.heap().cloned()
        {
            process.set_heap(None);
            if let Some(keeper) = &self.keeper {
                // A process that it has forked may have blocks of it.
                let of_it = self.images.iter().filter(|(_, h)| Rc::ptr_eq(h, &heap));
                for (&image, heap) in of_it {
                    keeper.segment(image, &heap.segment);
                }
            }
            self.images.retain(|_, h| !Rc::ptr_eq(h, &heap));
            self.heaps.remove(&id);
        }
    }

    /// Takes one event.
    pub fn event(&mut self, event: Event) {
        if let Some(keeper) = &self.keeper
            && self.concerns(&event)
        {
            keeper.event(&event);
        }
        self.code.observe(&event);
        match event {
            Event::Sample(sample) => self.sample(&sample),
            Event::Access {
                process, access, ..
            } => {
                if self.follows(process) {
                    self.process(process).access(&access);
                }
            }
            Event::Map {
                process, mapping, ..
            } => {
                if self.follows(process) {
                    self.process(process).map(mapping);
                }
            }
            Event::ThreadStart {
                process,
                parent,
                thread,
                time,
            } => {
                if process != parent && self.follows(parent) && !self.follows(process) {
                    self.not_followed += 1;
                }
                if self.follows(process) {
                    if process != parent && self.processes.contains_key(&parent) {
                        // The number may have belonged to another process before.
                        self.processes.begins(process);
                        self.exec(process, time);
                        self.fork(parent, process);
                    }
                    self.process(process).threads.started(thread);
                }
            }
            Event::ThreadName {
                process,
                thread,
                name,
                exec,
                time,
            } => {
                self.knows_program |= exec;
                if self.follows(process) {
                    if exec {
                        self.pass_on();
                        self.exec(process, time);
                    }
                    let process = self.process(process);
                    process.threads.started(thread);
                    process.threads.name(thread, name);
                }
            }
            // Threads that have ended are kept for the report.
            Event::ThreadEnd {
                process,
                thread,
                time,
            } => {
                if let Some(running) = self.processes.get_mut(&process) {
                    running.judge.ended(thread, time);
                }
                if process.0 == thread.0
                    && let Some(ended) = self.processes.get(&process)
                {
                    ended.files.release_if_ended();
                }
            }
            Event::Lost(count) => self.lost += count,
        }
    }

    /// Replaces the known mappings of a living process.
    pub fn set_mappings(&mut self, process: ProcessId, mappings: Mappings) {
        let known = self.processes.enter(process);
        if let Some(keeper) = &self.keeper
            && *known.mappings() != mappings
        {
            keeper.mappings(process, &mappings);
        }
        match &self.kept_files {
            Some(kept) => kept.give(&mappings, &mut known.names),
            None => self.files.hold(&known.files, &mappings, &mut known.names),
        }
        known.set_mappings(mappings);
    }

    /// Reads a living process's code mappings again, for observers whose events do not report
    /// them. Those of a process that is gone are kept.
    pub fn refresh_code(&mut self, process: ProcessId) {
        let _ = self.code.attach(process);
    }

    /// Takes the heap events that the runtime has reported.
    pub fn heap_events(&mut self) {
        for process in self.processes.values_mut() {
            process.heap_events();
        }
    }

    /// From now on the runtime reports each allocation and free around `line`.
    pub fn watch_line(&mut self, process: ProcessId, line: Address, since: Time) {
        let granule = self.granule();
        self.process(process).watch_line(line, since, granule);
    }

    /// The process `id`, which is added if it is not known.
    pub fn process(&mut self, id: ProcessId) -> &mut Process {
        self.processes.enter(id)
    }

    /// The code of the processes, borrowed apart from them.
    pub fn code(&mut self) -> &mut ProcessCode {
        &mut self.code
    }

    /// How many samples were judged, and how many threads were seen.
    pub fn seen_so_far(&self) -> (u64, u32) {
        let all = self.past.iter().chain(self.processes.values());
        all.fold((0, 0), |(samples, threads), process| {
            let more = process.threads.count();
            (
                samples + process.figures.samples,
                threads.saturating_add(more),
            )
        })
    }

    /// The processes that are known and have not ended.
    pub fn living(&self) -> Vec<ProcessId> {
        self.processes.living().collect()
    }

    /// Whether a followed process started others that are not followed, as far as events report
    /// it.
    pub const fn left_children_out(&self) -> bool {
        self.not_followed > 0
    }

    /// Whether an event told which program a process executes.
    pub const fn knows_program(&self) -> bool {
        self.knows_program
    }

    /// The granule of coherence that the judge uses.
    pub const fn granule(&self) -> Granule {
        self.config.granule()
    }

    /// Adds a step to the recording, if there is one.
    fn note(&self, step: impl FnOnce() -> Step) {
        if let Some(keeper) = &self.keeper {
            keeper.recorder.add(&step());
        }
    }

    /// Whether an event changes what is known of a followed process.
    fn concerns(&self, event: &Event) -> bool {
        match event {
            Event::Sample(_) => false,
            Event::Lost(_) => true,
            Event::Access { process, .. }
            | Event::Map { process, .. }
            | Event::ThreadStart { process, .. }
            | Event::ThreadName { process, .. }
            | Event::ThreadEnd { process, .. } => self.follows(*process),
        }
    }

    fn follows(&self, process: ProcessId) -> bool {
        match self.follow {
            Follow::Only(only) => only == process,
            Follow::All => true,
        }
    }

    /// The process executes a new program, or its number belongs to a new process: nothing
    /// known about the old image holds.
    fn exec(&mut self, id: ProcessId, time: Time) {
        if let Some(held) = &mut self.held {
            held.forget(id);
        }
        let mut parent = None;
        if let Some(mut old) = self.processes.remove(&id) {
            parent = old.parent;
            if old.heap().is_some_and(|heap| heap.since > time) {
                old.set_heap(None);
            }
            if old.figures.samples + old.figures.accesses > 0 {
                self.past.push(old);
            }
        }
        let new = self.process(id);
        (new.began, new.parent) = (time, parent);
        self.give_heap(id);
    }

    /// A child begins with its parent's address space.
    fn fork(&mut self, parent: ProcessId, child: ProcessId) {
        let parent = self.process(parent);
        let (id, mappings) = (parent.id, parent.mappings().clone());
        let name = parent.threads.process_name();
        let child = self.process(child);
        child.set_mappings(mappings);
        child.parent = Some(id);
        if let Some(name) = name {
            child.threads.inherit_name(name);
        }
    }
}
