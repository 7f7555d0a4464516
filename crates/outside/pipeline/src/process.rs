//! One process image under observation, with its judge, names, threads and heap. An `exec` ends
//! one image and begins another.
//!
//! Fed by `session`, for every observer. It must not open or wait for anything in a way that
//! the target could notice. Whose memory an address was is in `owners`, what threads have of their own
//! in `stacks`.

mod owners;
mod stacks;

use crate::blind::Blind;
use crate::blocks::{FreedBlock, HeapBlocks};
use crate::common_memory::{has_common_memory, makes_common};
use crate::files::TargetFiles;
use crate::heap::{Heap, SegmentBlocks};
use crate::kept::Made;
use crate::recorded_stacks::RecordedStacks;
use crate::sharable::as_it_was;
use crate::threads::Threads;
use std::collections::BTreeMap;
use std::fs::File;
use std::rc::Rc;
use std::sync::Arc;
use sunder_access::{Address, CodeAddress, Mapping, Mappings, ProcessId, Span, ThreadId, Time};
use sunder_findings as findings;
use sunder_findings::ProcessName;
use sunder_objects::{GeneratedCode, NameOptions, Names, ThreadPointer};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::generated::generated_functions;
use sunder_observe::{Decoded, RawSample};
use sunder_recording::{self as recording, Recorder};
use sunder_sharing::{Burst, Config, Judge, Sample, Ways};
use sunder_trace::read::Event;

/// One process image.
pub struct Process {
    /// The process number.
    pub id: ProcessId,
    /// The judge of its accesses.
    pub judge: Judge,
    /// The names of its objects and code.
    pub names: Names,
    /// Its threads.
    pub threads: Threads,
    /// Its files, also after its end.
    pub files: Arc<ForeignFiles>,
    /// Its memory, opened when first needed; the inner `None` means that it was refused.
    memory: Option<Option<File>>,
    /// Thread pointers that were found in memory, because no runtime reports them.
    pointers: Vec<ThreadPointer>,
    mappings: Mappings,
    /// Whether one of them is or was common memory that is written.
    common_memory: bool,
    /// The records of the runtime in a live process.
    heap: Option<Rc<Heap>>,
    /// Its heap blocks, from those records or from a trace.
    blocks: Option<Box<dyn HeapBlocks>>,
    /// The time at which this image began; 0 if its beginning was not observed.
    pub began: Time,
    /// The process that started it.
    pub parent: Option<ProcessId>,
    /// The stacks that a trace describes.
    recorded_stacks: RecordedStacks,
    /// The simulation's counts of the granules that moved; empty without a simulation.
    pub simulated: BTreeMap<Address, findings::Simulated>,
    /// Blocks that were freed while their line was watched. The judge's owner tags are indices
    /// into it, from 1.
    freed: Vec<FreedBlock>,
    /// Lines whose allocations and frees the runtime reports.
    watched: std::collections::HashSet<Address>,
    accesses: Vec<(sunder_access::Access, i16)>,
    near: Vec<CodeAddress>,
    perhaps: Vec<CodeAddress>,
    /// The time whose accesses have no address.
    pub blind: Blind,
    /// Figures for the report.
    pub figures: Figures,
    /// The remedy that moves its pages stops all of its threads for that, so that their state
    /// need not be known before.
    pub stops_to_move: bool,
    /// Whether it was looked at while it lived, so that files with its number are its own.
    was_alive: bool,
    /// The recording into which it writes what only it reads, if there is one.
    pub recorder: Option<Recorder>,
    /// What it wrote last of its thread-local variables.
    last_locals: Option<recording::ThreadLocals>,
    /// The functions that its runtime had made, if a recording tells.
    made: Option<Made>,
}

/// Counts for the report.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Samples.
    pub samples: u64,
    /// Accesses with exact addresses.
    pub accesses: u64,
    /// Accesses trapped by watchpoints.
    pub watched: u64,
    /// The time of the first sample or access.
    pub first: Option<Time>,
    /// The time of the last sample or access.
    pub last: Option<Time>,
}

impl Figures {
    fn at(&mut self, time: Time) {
        self.first = Some(self.first.map_or(time, |t| t.min(time)));
        self.last = Some(self.last.map_or(time, |t| t.max(time)));
    }
}

impl Process {
    /// A process without any events yet, whose files can be opened by `files`.
    pub fn new(id: ProcessId, config: Config, files: ForeignFiles) -> Self {
        let files = Arc::new(files);
        let names = NameOptions {
            executable: files.executable().ok().map(Arc::new),
            files: Arc::new(TargetFiles(Arc::clone(&files))),
            ..NameOptions::default()
        };
        let mut new = Self::with(id, config, files, names);
        new.was_alive = true;
        new
    }

    /// A process that ended before it was looked at; `files` are those of another. Another process
    /// may have its number, so `/proc` is not read.
    pub fn gone(id: ProcessId, config: Config, files: ForeignFiles) -> Self {
        let files = Arc::new(files);
        let names = NameOptions {
            files: Arc::new(TargetFiles(Arc::clone(&files))),
            ..NameOptions::default()
        };
        let mut gone = Self::with(id, config, files, names);
        gone.memory = Some(None);
        gone
    }

    /// A process from a recording. Another process may have its number today, so `/proc` is not
    /// read.
    pub fn recorded(id: ProcessId, config: Config) -> Self {
        let files = Arc::new(ForeignFiles::ours());
        Self::with(id, config, files, NameOptions::default())
    }

    fn with(id: ProcessId, config: Config, files: Arc<ForeignFiles>, names: NameOptions) -> Self {
        Self {
            files,
            memory: None,
            pointers: Vec::new(),
            id,
            judge: Judge::new(config),
            names: Names::new(names),
            threads: Threads::of(id),
            mappings: Mappings::new(),
            common_memory: false,
            heap: None,
            blocks: None,
            began: Time(0),
            parent: None,
            recorded_stacks: RecordedStacks::default(),
            simulated: BTreeMap::new(),
            freed: Vec::new(),
            watched: std::collections::HashSet::new(),
            accesses: Vec::new(),
            near: Vec::new(),
            perhaps: Vec::new(),
            blind: Blind::default(),
            figures: Figures::default(),
            stops_to_move: false,
            was_alive: false,
            recorder: None,
            last_locals: None,
            made: None,
        }
    }

    /// From now on, names are looked up in `files`. What has been read stays.
    pub fn set_files(&mut self, files: ForeignFiles) {
        self.files = Arc::new(files);
        self.names
            .set_files(Arc::new(TargetFiles(Arc::clone(&self.files))));
    }

    /// Reads the names of functions that its runtime made. Of a process that has only been recorded
    /// there is nothing to read.
    pub fn read_generated(&mut self) {
        let functions: Vec<_> = self.functions_made().collect();
        if functions.is_empty() {
            return;
        }
        let mut code = GeneratedCode::default();
        for (span, name) in functions {
            code.insert(span, name);
        }
        self.names.set_generated(code);
    }

    /// Sets the functions that its runtime had made, as a recording tells.
    pub fn made_functions(&mut self, made: Made) {
        self.made = Some(made);
    }

    /// The functions that its runtime made, and their names.
    pub fn functions_made(&self) -> impl Iterator<Item = (Span, String)> {
        if let Some(made) = &self.made {
            return made.clone().into_iter();
        }
        let is_kernels = |m: &Mapping| m.path.starts_with("[v");
        let without_file = |m: &Mapping| !m.is_file() || m.path.contains("memfd:");
        let made = |m: &Mapping| {
            m.execute && !is_kernels(m) && (without_file(m) || m.path.ends_with(".dump"))
        };
        if !self.was_alive || !self.mappings.iter().any(made) {
            return Vec::new().into_iter();
        }
        let all = generated_functions(&self.files, self.id, &self.mappings).into_iter();
        let all: Made = all.map(|function| (function.span, function.name)).collect();
        all.into_iter()
    }

    /// Sets its heap's records; `None` if they are not to be used.
    pub fn set_heap(&mut self, heap: Option<Rc<Heap>>) {
        if self.heap.as_ref().map(Rc::as_ptr) == heap.as_ref().map(Rc::as_ptr) {
            return;
        }
        self.heap = heap;
        self.blocks = None;
        if let Some(heap) = &self.heap {
            self.set_blocks(SegmentBlocks::new(Rc::clone(heap)));
        }
    }

    /// Sets the source of its heap blocks.
    pub fn set_blocks(&mut self, blocks: impl HeapBlocks + 'static) {
        self.blocks = Some(Box::new(blocks));
    }

    /// Its heap, if it is recorded.
    pub const fn heap(&self) -> Option<&Rc<Heap>> {
        self.heap.as_ref()
    }

    /// Adds a mapping.
    pub fn map(&mut self, mapping: Mapping) {
        self.common_memory |= makes_common(&mapping);
        self.mappings.insert(mapping);
    }

    /// Replaces the mappings by those that were read anew.
    pub fn set_mappings(&mut self, mappings: Mappings) {
        self.mappings = self.restored(mappings);
        self.common_memory = has_common_memory(&self.mappings);
    }

    /// These mappings of the process, with what was there before a remedy made memory sharable.
    #[must_use]
    pub fn restored(&self, now: Mappings) -> Mappings {
        as_it_was(&self.mappings, now)
    }

    /// Whether it may share memory with other processes.
    pub const fn has_common_memory(&self) -> bool {
        self.common_memory
    }

    /// The process as a finding refers to it.
    pub fn reference(&self) -> ProcessName {
        ProcessName {
            id: self.id.0,
            name: self.threads.process_name(),
            parent: self.parent.map(|p| p.0),
        }
    }

    /// The process in the result's schema.
    pub fn describe(&self) -> findings::Process {
        let ProcessName { id, name, parent } = self.reference();
        findings::Process {
            id,
            parent,
            name,
            threads: self.threads.count(),
            samples: self.figures.samples,
            heap_recorded: self.heap.is_some(),
        }
    }

    /// Its mappings.
    pub const fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// Judges the accesses of a decoded sample.
    pub fn sample(&mut self, sample: &RawSample, decoded: &Decoded) {
        self.figures.samples += 1;
        self.figures.accesses += decoded.accesses.len() as u64;
        self.figures.at(sample.time);
        self.threads
            .sampled(sample.thread, sample.registers.general[4]);
        self.accesses.clear();
        self.accesses.extend(
            decoded
                .accesses
                .iter()
                .zip(&decoded.distances)
                .map(|(access, distance)| (*access, *distance as i16)),
        );
        // Which of several places it was matters if one of them is contended.
        let settled = !decoded.choices.is_empty()
            && decoded
                .choices
                .iter()
                .all(|&span| !self.judge.is_contended_at(span));
        self.blind.sampled(sample, decoded, settled);
        self.near.clear();
        self.perhaps.clear();
        for near in &decoded.near {
            let kind = if near.avoidable {
                &mut self.perhaps
            } else {
                &mut self.near
            };
            kind.push(near.instruction);
        }
        let seen = Sample {
            time: sample.time,
            thread: sample.thread,
            period_ns: sample.period_ns,
            accesses: &self.accesses,
            near: &self.near,
            ways: decoded.join.map(|at| Ways {
                at,
                perhaps: &self.perhaps,
            }),
        };
        self.judge.sample_on(sample.judged_cpu(), &seen);
    }

    /// Judges an access with an exact address.
    pub fn access(&mut self, access: &sunder_access::Access) {
        self.figures.accesses += 1;
        self.figures.at(access.time);
        self.threads.started(access.thread);
        self.judge.access(access);
    }

    /// Judges the accesses that watchpoints trapped.
    pub fn burst(&mut self, burst: &Burst<'_>) {
        self.figures.watched += burst.accesses.len() as u64;
        self.judge.burst(burst);
    }

    /// Takes an event of a trace about a stack, or about the frames in which a thread is
    /// created.
    pub fn recorded_stack(&mut self, event: &Event, thread: ThreadId) {
        self.recorded_stacks.take(event, thread);
    }
}
