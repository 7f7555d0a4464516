//! One process image under observation: what the judge, the names and the heap
//! know of it. An `exec` ends one and begins another.
//!
//! It is fed by `session`, whoever observes; it must not open or wait for
//! anything that the target could notice.

use crate::heap::Heap;
use crate::pointers;
use crate::recorded_heap::{Home, Moved, RecordedHeap};
use crate::recorded_stacks::RecordedStacks;
use crate::sharable::as_it_was;
use crate::shared::has_common_memory;
use crate::threads::Threads;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::rc::Rc;
use sunder_access::{
    Address, CodeAddress, Granule, Mapping, Mappings, ProcessId, Span, ThreadId, Time,
};
use sunder_findings as findings;
use sunder_findings::ProcessName;
use sunder_objects::{
    HeapBlock, NameOptions, Names, ObjectContext, StackFrame, ThreadPointer, ThreadStack,
};
use sunder_observe::proc::living_number;
use sunder_observe::{Decoded, RawSample};
use sunder_sharing::{Burst, Config, Judge, Sample};
use sunder_trace::read::Event;
use sunder_wire::{HeapEventKind, TargetThread};

/// The tag for memory that changed owner when nobody knows who had it.
const OWNER_NONE: u64 = 0;

/// See the module's head.
pub struct Process {
    /// Its number.
    pub id: ProcessId,
    /// Who shares what.
    pub judge: Judge,
    /// What things are called.
    pub names: Names,
    /// Its threads.
    pub threads: Threads,
    /// Keeps the folder that `names` look files up in.
    _root: Option<File>,
    /// Keeps the program's file, which may be replaced or deleted while it runs.
    _executable: Option<File>,
    /// Its memory, opened when first needed; `None` inside if that is refused.
    memory: Option<Option<File>>,
    /// Thread pointers that were found, where no runtime tells them.
    pointers: Vec<ThreadPointer>,
    mappings: Mappings,
    common_memory: bool,
    heap: Option<Rc<Heap>>,
    /// Blocks from before a fork, kept when their lines came under suspicion: the
    /// records of the process that they come from go on changing.
    inherited: Vec<sunder_wire::HeapBlock>,
    /// When this image began; 0 if that was not seen.
    pub began: Time,
    /// The process that started it.
    pub parent: Option<ProcessId>,
    /// The heap, where a trace tells it.
    recorded: Option<RecordedHeap>,
    /// Stacks that a trace tells.
    told_stacks: RecordedStacks,
    /// What a simulation counted on the lines that were looked at; empty otherwise.
    pub simulated: BTreeMap<Address, findings::Simulated>,
    /// Blocks that were freed while their line was watched; the judge's owner
    /// tags count them from 1.
    freed: Vec<HeapBlock>,
    /// Of a replay, where these lay there; as many as `freed`, or none.
    homes: Vec<Home>,
    /// Lines whose allocations and frees the runtime reports.
    watched: std::collections::HashSet<Address>,
    accesses: Vec<(sunder_access::Access, i16)>,
    near: Vec<CodeAddress>,
    /// Figures for the report.
    pub figures: Figures,
    /// Whoever moves pages of it looks at all of its threads at that moment, so that
    /// nothing needs to be known of them before.
    pub stops_to_move: bool,
}

/// Counts of what was seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Figures {
    /// Samples.
    pub samples: u64,
    /// Accesses with exact addresses.
    pub accesses: u64,
    /// Accesses trapped by watchpoints.
    pub watched: u64,
    /// First and last sample or access.
    pub first: Option<Time>,
    /// See `first`.
    pub last: Option<Time>,
}

impl Figures {
    fn at(&mut self, time: Time) {
        self.first = Some(self.first.map_or(time, |t| t.min(time)));
        self.last = Some(self.last.map_or(time, |t| t.max(time)));
    }
}

impl Process {
    /// A process of which nothing has been seen yet.
    pub fn new(id: ProcessId, config: Config) -> Self {
        Self::under(id, config, other_root(id))
    }

    /// A process that was recorded; who has its number today does not matter.
    pub fn recorded(id: ProcessId, config: Config) -> Self {
        Self::under(id, config, None)
    }

    fn under(id: ProcessId, config: Config, root: Option<File>) -> Self {
        let executable = File::open(format!("/proc/{}/exe", living_number(id))).ok();
        let names = NameOptions {
            executable: executable
                .as_ref()
                .map(|f| format!("/proc/self/fd/{}", f.as_raw_fd()).into()),
            root: root
                .as_ref()
                .map(|r| format!("/proc/self/fd/{}", r.as_raw_fd()).into()),
            ..NameOptions::default()
        };
        Self {
            _root: root,
            _executable: executable,
            memory: None,
            pointers: Vec::new(),
            id,
            judge: Judge::new(config),
            names: Names::new(names),
            threads: Threads::of(id),
            mappings: Mappings::new(),
            common_memory: false,
            heap: None,
            inherited: Vec::new(),
            began: Time(0),
            parent: None,
            recorded: None,
            told_stacks: RecordedStacks::default(),
            simulated: BTreeMap::new(),
            freed: Vec::new(),
            homes: Vec::new(),
            watched: std::collections::HashSet::new(),
            accesses: Vec::new(),
            near: Vec::new(),
            figures: Figures::default(),
            stops_to_move: false,
        }
    }

    /// Its heap is recorded there, or is not to be known.
    pub fn set_heap(&mut self, heap: Option<Rc<Heap>>) {
        self.heap = heap;
    }

    /// Its heap, if that is recorded.
    pub const fn heap(&self) -> Option<&Rc<Heap>> {
        self.heap.as_ref()
    }

    /// Something was mapped.
    pub fn map(&mut self, mapping: Mapping) {
        self.mappings.insert(mapping);
        self.common_memory = has_common_memory(&self.mappings);
    }

    /// What is mapped, read anew as a whole.
    pub fn set_mappings(&mut self, mappings: Mappings) {
        self.mappings = as_it_was(&self.mappings, mappings);
        self.common_memory = has_common_memory(&self.mappings);
    }

    /// Whether it may share memory with other processes.
    pub const fn has_common_memory(&self) -> bool {
        self.common_memory
    }

    /// What a finding calls it.
    pub fn reference(&self) -> ProcessName {
        ProcessName {
            id: self.id.0,
            name: self.threads.process_name(),
            parent: self.parent.map(|p| p.0),
        }
    }

    /// What the result says of it.
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

    /// What is mapped.
    pub const fn mappings(&self) -> &Mappings {
        &self.mappings
    }

    /// A sample was taken and decoded.
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
        self.near.clear();
        self.near.extend(decoded.near.iter().map(|n| n.instruction));
        let seen = Sample {
            time: sample.time,
            thread: sample.thread,
            period_ns: sample.period_ns,
            accesses: &self.accesses,
            near: &self.near,
        };
        self.judge.sample_on(sample.cpu, &seen);
    }

    /// An access came with its address.
    pub fn access(&mut self, access: &sunder_access::Access) {
        self.figures.accesses += 1;
        self.figures.at(access.time);
        self.threads.started(access.thread);
        self.judge.access(access);
    }

    /// Watchpoints caught something.
    pub fn burst(&mut self, burst: &Burst<'_>) {
        self.figures.watched += burst.accesses.len() as u64;
        self.judge.burst(burst);
    }

    /// A trace tells of a stack, or of frames in which a thread is created.
    pub fn stack_told(&mut self, event: &Event, thread: ThreadId) {
        self.told_stacks.take(event, thread);
    }

    /// From now on the runtime reports what is allocated and freed on `line`, which
    /// was first touched at `since`. What was seen before a present block was born
    /// belonged to somebody else.
    pub fn watch_line(&mut self, line: Address, since: Time, granule: Granule) {
        let Some(heap) = &self.heap else { return };
        if !self.watched.insert(line) {
            return;
        }
        heap.segment.watch_line(line);
        let heap = Rc::clone(heap);
        // A short program may end before its mappings are read again.
        self.read_thread_locals();
        let mut at = line;
        let end = line.0 + granule.bytes();
        while at.0 < end {
            let mut next = at.0 + 8;
            if let Some(block) = heap.segment.block_at(at) {
                if block.freed.is_none() && block.born.earliest > since {
                    self.judge
                        .retire(block.span, block.born.earliest, OWNER_NONE);
                }
                next = next.max(block.span.end().0);
            } else if let Some(block) = heap.inherited(at) {
                next = next.max(block.span.end().0);
                self.inherited.push(block);
            }
            at = Address(next);
        }
    }

    /// Takes in what happened to the heap since the last call.
    pub fn heap_events(&mut self) {
        let Some(heap) = self.heap.clone() else {
            return;
        };
        heap.segment
            .drain_heap_events(&mut |event| match event.kind {
                HeapEventKind::Allocated => {
                    self.judge.retire(event.span, event.time, OWNER_NONE);
                }
                HeapEventKind::Freed => {
                    self.freed.push(HeapBlock {
                        span: event.span,
                        allocation: event.stack,
                        thread: None,
                        freed: true,
                    });
                    let owner = self.freed.len() as u64;
                    self.judge.retire(event.span, event.time, owner);
                }
            });
    }

    /// Its heap is told by [`Process::allocated`] and [`Process::freed`].
    pub fn set_recorded_heap(&mut self, heap: RecordedHeap) {
        self.recorded = Some(heap);
    }

    /// A trace says that `thread` allocated a block; `looked_at` since when, if
    /// accesses to what lay there before were taken in.
    pub fn allocated(
        &mut self,
        block: Moved,
        stack: u32,
        thread: ThreadId,
        looked_at: Option<Time>,
    ) {
        if let Some(time) = looked_at {
            let span = Span::new(block.to.start, block.to.len.max(1));
            self.judge.retire(span, time, OWNER_NONE);
        }
        if let Some(heap) = &mut self.recorded {
            heap.allocated(block, stack, thread);
        }
    }

    /// A trace says that the block was freed that lies at `start` in the replay;
    /// `looked_at` whether accesses to it were taken in.
    pub fn freed(&mut self, start: Address, time: Time, looked_at: impl Fn(Span) -> bool) {
        let Some(heap) = &mut self.recorded else {
            return;
        };
        let Some(span) = heap.freed(start) else {
            return;
        };
        if looked_at(span)
            && let Some(block) = heap.block_at(start)
            && let Some(home) = heap.home(start)
        {
            self.freed.push(block);
            self.homes.push(home.clone());
            let owner = self.freed.len() as u64;
            self.judge.retire(span, time, owner);
        }
    }

    /// Where what lies at `address` in a replay was recorded; `address` itself where
    /// nothing was moved.
    pub fn origin(&self, address: Address, owner: Option<u64>) -> Address {
        let Some(heap) = &self.recorded else {
            return address;
        };
        let gone = owner.and_then(|o| self.homes.get(usize::try_from(o).ok()?.checked_sub(1)?));
        gone.and_then(|home| home.origin(address))
            .or_else(|| heap.home(address)?.origin(address))
            .unwrap_or(address)
    }

    /// The heap block that held `address`: one that was freed, if the judge's
    /// `owner` says so, or the present one. In a replay, `address` is where it lies there,
    /// and the answer tells where it was recorded.
    pub fn block_at(&self, address: Address, owner: Option<u64>) -> Option<HeapBlock> {
        if let Some(owner) = owner.and_then(|o| usize::try_from(o).ok())
            && let Some(block) = owner.checked_sub(1).and_then(|i| self.freed.get(i))
        {
            let home = self.homes.get(owner - 1);
            if home.map_or(block.span.contains(address), |h| {
                h.origin(address).is_some()
            }) {
                return Some(block.clone());
            }
        }
        if let Some(heap) = &self.recorded {
            return heap.block_at(address);
        }
        let heap = self.heap.as_ref()?;
        let kept = || {
            let kept = self.inherited.iter().find(|b| b.span.contains(address));
            kept.cloned().or_else(|| heap.inherited(address))
        };
        let block = heap.segment.block_at(address).or_else(kept)?;
        Some(HeapBlock {
            span: block.span,
            allocation: block.stack,
            thread: (block.thread.0 != 0).then_some(block.thread),
            freed: block.freed.is_some(),
        })
    }

    /// What the names need to know about `address`.
    pub fn context(&self, address: Address, owner: Option<u64>) -> ObjectContext {
        ObjectContext {
            heap: self.block_at(address, owner),
            stacks: self.stacks(),
            thread_pointers: self.thread_pointers(),
            frames: self.frames(address),
            touched_by: Vec::new(),
        }
    }

    /// The frames that hold `address` of those that threads were created in.
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
        frames.extend(self.told_stacks.frames(address));
        frames
    }

    /// Stacks as the runtime tells them; without it, the mapping that a thread's
    /// stack pointer was seen in.
    fn stacks(&self) -> Vec<ThreadStack> {
        let told: Vec<_> = self
            .heap
            .iter()
            .flat_map(|heap| heap.segment.threads())
            .filter(|t| t.stack.len > 0)
            .map(|t| ThreadStack {
                thread: t.thread,
                span: t.stack,
            })
            .collect();
        if !told.is_empty() {
            return told;
        }
        if !self.told_stacks.stacks().is_empty() {
            return self.told_stacks.stacks().to_vec();
        }
        self.threads
            .stack_pointers()
            .filter_map(|(thread, pointer)| {
                let span = self.mappings.at(Address(pointer))?.span;
                // Green threads and coroutines run on parts of large mappings,
                // which are nobody's stack as a whole.
                let stack = self.mappings.at(Address(pointer))?;
                (stack.path.starts_with("[stack") || span.len <= LARGEST_STACK)
                    .then_some(ThreadStack { thread, span })
            })
            .collect()
    }

    /// Whether a thread was seen in this mapping with a stack that is not its own: one that
    /// the program made for itself, beside which there are others as a rule.
    pub fn makes_stacks_in(&self, mapping: &Mapping) -> bool {
        let (start, end) = (mapping.span.start.0, mapping.span.end().0);
        if mapping.path.starts_with("[stack") {
            return false;
        }
        let told: Vec<Span> = self.target_threads().map(|t| t.stack).collect();
        // The descriptor of a thread lies at the top of its stack.
        let found = self.pointers.iter().map(|p| p.fs_base.0);
        let found: Vec<u64> = found.filter(|at| (start..end).contains(at)).collect();
        let is_own = |at: u64| {
            told.iter().any(|stack| stack.contains(Address(at)))
                || found.iter().any(|&top| at < top)
        };
        self.threads.stood_in(start, end).any(|at| !is_own(at))
    }

    fn thread_pointers(&self) -> Vec<ThreadPointer> {
        let told = self.target_threads().map(pointer_of);
        told.chain(self.pointers.iter().copied()).collect()
    }

    /// The threads whose thread pointer the runtime told.
    fn target_threads(&self) -> impl Iterator<Item = TargetThread> {
        let all = self.heap.iter().flat_map(|heap| heap.segment.threads());
        all.filter(|t| t.fs_base.0 != 0)
    }

    /// Learns where the thread-local blocks of libraries lie, while the process
    /// lives.
    pub fn read_thread_locals(&mut self) {
        let id = self.id;
        let memory = self
            .memory
            .get_or_insert_with(|| File::open(format!("/proc/{}/mem", living_number(id))).ok());
        let Some(memory) = memory.as_ref() else {
            return;
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
            self.pointers.extend(found);
        }
        let told = self.heap.iter().flat_map(|heap| heap.segment.threads());
        let living = told.filter(|t| t.fs_base.0 != 0 && !t.ended);
        let threads = living.map(pointer_of).chain(self.pointers.iter().copied());
        let threads: Vec<_> = threads.take(MOST_THREADS_READ).collect();
        if !threads.is_empty() {
            self.names
                .read_thread_locals(&self.mappings, &threads, &mut read);
        }
    }
}

const fn pointer_of(thread: TargetThread) -> ThreadPointer {
    ThreadPointer {
        thread: thread.thread,
        fs_base: thread.fs_base,
    }
}

/// Threads whose thread pointer is looked for at a time; each costs a read of up
/// to 256 KiB.
const MOST_THREADS_SEARCHED: usize = 16;

/// Threads whose tables of thread-local blocks are read at a time; each costs a
/// few system calls.
const MOST_THREADS_READ: usize = 256;

/// Mappings larger than this hold more than one thread's stack: eight times
/// glibc's default of 8 MiB.
const LARGEST_STACK: u64 = 64 << 20;

/// The root folder of a process that sees another one than we do (a container),
/// held open because names are looked up after it has ended.
fn other_root(process: ProcessId) -> Option<File> {
    let theirs = File::open(format!("/proc/{}/root", living_number(process))).ok()?;
    let (a, b) = (theirs.metadata().ok()?, std::fs::metadata("/").ok()?);
    ((a.dev(), a.ino()) != (b.dev(), b.ino())).then_some(theirs)
}
