//! One process image under observation, with its judge, names, threads and heap. An `exec` ends
//! one image and begins another.
//!
//! Fed by `session`, for every observer. It must not open or wait for anything in a way that
//! the target could notice.

use crate::blind::Blind;
use crate::blocks::{FreedBlock, HeapBlocks, OwnerChange};
use crate::common_memory::{has_common_memory, makes_common};
use crate::files::TargetFiles;
use crate::heap::{Heap, SegmentBlocks};
use crate::kept::{Made, kept_owner_change};
use crate::pointers;
use crate::recorded_stacks::RecordedStacks;
use crate::sharable::as_it_was;
use crate::stack_mappings::stacks_of;
use crate::threads::Threads;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::rc::Rc;
use std::sync::Arc;
use sunder_access::{
    Address, CodeAddress, Granule, Mapping, Mappings, ProcessId, Span, ThreadId, Time,
};
use sunder_findings as findings;
use sunder_findings::ProcessName;
use sunder_objects::{
    GeneratedCode, HeapBlock, NameOptions, Names, ObjectContext, StackFrame, ThreadPointer,
    ThreadStack,
};
use sunder_observe::foreign::ForeignFiles;
use sunder_observe::generated::generated_functions;
use sunder_observe::proc::{self, MemoryUse};
use sunder_observe::{Decoded, RawSample};
use sunder_recording::{self as recording, Recorder, Step};
use sunder_sharing::{Burst, Config, Judge, Sample, Ways};
use sunder_trace::read::Event;
use sunder_wire::TargetThread;

/// The owner tag of memory whose earlier owner is not known.
const OWNER_NONE: u64 = 0;

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

    /// From now on the allocations and frees on `line` are reported, which was first accessed
    /// at `since`. Accesses from before the present block was allocated belonged to another
    /// owner.
    pub fn watch_line(&mut self, line: Address, since: Time, granule: Granule) {
        if self.blocks.is_none() || !self.watched.insert(line) {
            return;
        }
        let line = Span::new(line, granule.bytes());
        self.retire(|blocks, each| blocks.watch(line, since, each));
        // A short program may end before its mappings are read the next time.
        self.read_thread_locals();
    }

    /// Takes the heap events that have come since the last call.
    pub fn heap_events(&mut self) {
        self.retire(|blocks, each| blocks.changes(each));
    }

    /// Retires the earlier accesses to memory whose owner changes, for each change that `ask`
    /// has the source of the blocks report.
    fn retire(&mut self, ask: impl FnOnce(&mut dyn HeapBlocks, &mut dyn FnMut(OwnerChange))) {
        let Some(blocks) = &mut self.blocks else {
            return;
        };
        let mut changes = Vec::new();
        ask(&mut **blocks, &mut |change| changes.push(change));
        if let Some(recorder) = self.recorder.as_ref().filter(|_| !changes.is_empty()) {
            recorder.add(&Step::Owners {
                process: self.id.0,
                changes: changes.iter().map(kept_owner_change).collect(),
            });
        }
        self.owners_changed(changes);
    }

    /// Retires the earlier accesses to memory whose owner changed.
    pub fn owners_changed(&mut self, changes: Vec<OwnerChange>) {
        for change in changes {
            let owner = match change.freed {
                Some(block) => {
                    self.freed.push(block);
                    self.freed.len() as u64
                }
                None => OWNER_NONE,
            };
            self.judge.retire(change.span, change.time, owner);
        }
    }

    /// Takes over what was found before, in parts: the judge, whose owner tags are numbers of `freed`
    /// from 1, and the figures.
    pub fn restore(&mut self, judge: Judge, freed: Vec<FreedBlock>, figures: Figures) {
        for time in judge.thread_time() {
            self.threads.started(time.thread);
        }
        (self.judge, self.freed, self.figures) = (judge, freed, figures);
    }

    /// The freed block that the judge's `owner` tag stands for.
    fn freed_block(&self, owner: Option<u64>) -> Option<&FreedBlock> {
        let owner = usize::try_from(owner?).ok()?;
        self.freed.get(owner.checked_sub(1)?)
    }

    /// The recorded address of the byte that lies at `address` in a replay; `address` itself if
    /// it was not moved.
    pub fn origin(&self, address: Address, owner: Option<u64>) -> Address {
        let freed = self.freed_block(owner);
        let moved = freed.and_then(|freed| freed.moved.as_ref());
        moved
            .and_then(|moved| moved.origin(address))
            .or_else(|| self.blocks.as_ref()?.origin(address))
            .unwrap_or(address)
    }

    /// The heap block that held `address`: a freed one if the judge's `owner` says so, else the
    /// present one. In a replay, `address` is the address there, and the block is returned as
    /// it was recorded.
    pub fn block_at(&self, address: Address, owner: Option<u64>) -> Option<HeapBlock> {
        match self.freed_block(owner).filter(|freed| freed.held(address)) {
            Some(freed) => Some(freed.block.clone()),
            None => self.blocks.as_ref()?.block_at(address),
        }
    }

    /// The facts that the names need about `address`.
    pub fn context(&self, address: Address, owner: Option<u64>) -> ObjectContext {
        ObjectContext {
            heap: self.block_at(address, owner),
            stacks: self.stacks(),
            thread_pointers: self.thread_pointers(),
            frames: self.frames(address),
            touched_by: Vec::new(),
        }
    }

    /// The same, of an address that was last used at `last`: a block that was allocated there later
    /// was not used.
    pub fn context_until(&self, address: Address, owner: Option<u64>, last: Time) -> ObjectContext {
        let mut context = self.context(address, owner);
        let block = self.heap.as_ref().and_then(|h| h.segment.block_at(address));
        let came_later = block.is_some_and(|b| b.born.earliest > last);
        if came_later && self.freed_block(owner).is_none() {
            context.heap = None;
        }
        context
    }

    /// The alignment at which every heap block like the one at `span` starts: what the program
    /// requested, and at least what `malloc` promises for its size (glibc's manual, section 3.2.3.6:
    /// 16 bytes on 64-bit systems; allocators that give less do so for blocks below 16 bytes only).
    pub fn alignment_of(&self, span: Span) -> u64 {
        let heap = self.heap.as_ref();
        let block = heap.and_then(|heap| heap.segment.block_at(span.start));
        let requested = block.filter(|block| block.span.start == span.start);
        let usual = if span.len < 16 { 8 } else { 16 };
        requested.map_or(1, |block| block.alignment).max(usual)
    }

    /// The stack frames that hold `address`, among those in which threads were created.
    fn frames(&self, address: Address) -> Vec<StackFrame> {
        let creations = self.heap.iter().flat_map(|heap| heap.segment.creations());
        let mut frames: Vec<StackFrame> = creations
            .flat_map(|made| {
                let ends: Vec<_> = made
                    .frames
                    .iter()
                    .skip(1)
                    .map(|f| f.stack_pointer)
                    .collect();
                made.frames
                    .into_iter()
                    .enumerate()
                    .map(move |(i, frame)| StackFrame {
                        thread: made.creator,
                        created: made.thread,
                        return_address: frame.return_address,
                        stack_pointer: frame.stack_pointer,
                        frame_pointer: frame.frame_pointer,
                        cfa: ends.get(i).copied(),
                    })
            })
            .filter(|frame| frame.holds(address))
            .collect();
        frames.extend(self.recorded_stacks.frames(address));
        frames
    }

    /// The stacks that the runtime reports; without it, the mappings that contain the threads'
    /// stack pointers.
    fn stacks(&self) -> Vec<ThreadStack> {
        let reported: Vec<_> = self
            .heap
            .iter()
            .flat_map(|heap| heap.segment.threads())
            .filter(|t| t.stack.len > 0)
            .map(|t| ThreadStack {
                thread: t.thread,
                span: t.stack,
            })
            .collect();
        if !reported.is_empty() {
            return reported;
        }
        if !self.recorded_stacks.stacks().is_empty() {
            return self.recorded_stacks.stacks().to_vec();
        }
        stacks_of(self.threads.stack_pointers(), &self.mappings)
    }

    /// Whether a thread was seen in this mapping on a stack that is not its own. The program
    /// made that stack, and as a rule others beside it.
    pub fn makes_stacks_in(&self, mapping: &Mapping) -> bool {
        let (start, end) = (mapping.span.start.0, mapping.span.end().0);
        if mapping.path.starts_with("[stack") {
            return false;
        }
        let own: Vec<Span> = self.target_threads().map(|t| t.stack).collect();
        // A thread's descriptor is at the top of its stack.
        let found = self.pointers.iter().map(|p| p.fs_base.0);
        let found: Vec<u64> = found.filter(|at| (start..end).contains(at)).collect();
        let is_own = |at: u64| {
            own.iter().any(|stack| stack.contains(Address(at))) || found.iter().any(|&top| at < top)
        };
        self.threads.stood_in(start, end).any(|at| !is_own(at))
    }

    fn thread_pointers(&self) -> Vec<ThreadPointer> {
        let reported = self.target_threads().map(pointer_of);
        reported.chain(self.pointers.iter().copied()).collect()
    }

    /// The threads whose thread pointers the runtime reported.
    fn target_threads(&self) -> impl Iterator<Item = TargetThread> {
        let all = self.heap.iter().flat_map(|heap| heap.segment.threads());
        all.filter(|t| t.fs_base.0 != 0)
    }

    /// Reads where the thread-local blocks of libraries lie. Works only while the process
    /// lives.
    pub fn read_thread_locals(&mut self) {
        let id = self.id;
        let memory = self
            .memory
            .get_or_insert_with(|| proc::memory(id, MemoryUse::Read).ok());
        let Some(memory) = memory.as_ref() else {
            return;
        };
        let mut kept = recording::ThreadLocals {
            process: id.0,
            ..recording::ThreadLocals::default()
        };
        let mut read = |at: Address, bytes: &mut [u8]| memory.read_exact_at(bytes, at.0).is_ok();
        if self.heap.is_none() {
            let known: Vec<_> = self.pointers.iter().map(|p| p.thread).collect();
            let new = self.threads.stack_pointers();
            let new = new.filter(|(thread, _)| !known.contains(thread));
            let found = new
                .take(MOST_THREADS_SEARCHED)
                .filter_map(|(thread, sp)| pointers::find(thread, sp, &self.mappings, &mut read));
            let room = MOST_THREADS_READ.saturating_sub(known.len());
            let found: Vec<_> = found.take(room).collect();
            kept.found = found.iter().map(numbers_of).collect();
            self.pointers.extend(found);
        }
        let reported = self.heap.iter().flat_map(|heap| heap.segment.threads());
        let living = reported.filter(|t| t.fs_base.0 != 0 && !t.ended);
        let threads = living.map(pointer_of).chain(self.pointers.iter().copied());
        let threads: Vec<_> = threads.take(MOST_THREADS_READ).collect();
        kept.threads = threads.iter().map(numbers_of).collect();
        if threads.is_empty() {
            return;
        }
        let Some(recorder) = &self.recorder else {
            self.names
                .read_thread_locals(&self.mappings, &threads, &mut read);
            return;
        };
        let keep = &mut |at: Address, bytes: &mut [u8]| {
            let done = read(at, bytes);
            if done {
                kept.memory.push((at.0, bytes.to_vec()));
            }
            done
        };
        self.names
            .read_thread_locals(&self.mappings, &threads, keep);
        if self.last_locals.as_ref() != Some(&kept) {
            recorder.add(&Step::ThreadLocals(kept.clone()));
            self.last_locals = Some(kept);
        }
    }

    /// As [`Self::read_thread_locals`], with the memory that was read while the process lived.
    pub fn kept_thread_locals(&mut self, kept: &recording::ThreadLocals) {
        let of = |&(thread, fs_base): &(u32, u64)| ThreadPointer {
            thread: ThreadId(thread),
            fs_base: Address(fs_base),
        };
        let room = MOST_THREADS_READ.saturating_sub(self.pointers.len());
        self.pointers.extend(kept.found.iter().take(room).map(of));
        let threads: Vec<_> = kept.threads.iter().map(of).collect();
        let all = kept.memory.iter();
        let memory: BTreeMap<(u64, usize), &[u8]> = all
            .map(|(at, bytes)| ((*at, bytes.len()), bytes.as_slice()))
            .collect();
        // What could not be read then is left out.
        let mut read = |at: Address, bytes: &mut [u8]| {
            let found = memory.get(&(at.0, bytes.len()));
            found.is_some_and(|found| {
                bytes.copy_from_slice(found);
                true
            })
        };
        self.names
            .read_thread_locals(&self.mappings, &threads, &mut read);
    }
}

const fn numbers_of(pointer: &ThreadPointer) -> (u32, u64) {
    (pointer.thread.0, pointer.fs_base.0)
}

const fn pointer_of(thread: TargetThread) -> ThreadPointer {
    ThreadPointer {
        thread: thread.thread,
        fs_base: thread.fs_base,
    }
}

/// The most threads whose thread pointers are searched at a time; each costs a read of up to
/// 256 KiB.
const MOST_THREADS_SEARCHED: usize = 16;

/// The most threads whose tables of thread-local blocks are read at a time; each costs a few
/// system calls.
const MOST_THREADS_READ: usize = 256;
