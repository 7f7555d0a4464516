//! The memory that a process's threads have of their own: their stacks, the frames in which threads are
//! created, and where their thread-local variables lie.

use super::Process;
use crate::pointers;
use crate::stack_mappings::stacks_of;
use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use sunder_access::{Address, Mapping, Span, ThreadId};
use sunder_objects::{StackFrame, ThreadPointer, ThreadStack};
use sunder_observe::proc::{self, MemoryUse};
use sunder_recording::{self as recording, Step};
use sunder_wire::TargetThread;

/// The most threads whose thread pointers are searched at a time; each costs a read of up to
/// 256 KiB.
const MOST_THREADS_SEARCHED: usize = 16;

/// The most threads whose tables of thread-local blocks are read at a time; each costs a few
/// system calls.
const MOST_THREADS_READ: usize = 256;

impl Process {
    /// The stack frames that hold `address`, among those in which threads were created.
    pub(super) fn frames(&self, address: Address) -> Vec<StackFrame> {
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
    pub(super) fn stacks(&self) -> Vec<ThreadStack> {
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

    pub(super) fn thread_pointers(&self) -> Vec<ThreadPointer> {
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
