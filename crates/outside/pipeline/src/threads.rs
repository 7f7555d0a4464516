//! The threads of a process: their names, and the order in which they appeared. Filled from
//! events; it reads nothing itself.

use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use sunder_access::{ProcessId, ThreadId};
use sunder_findings as findings;

/// Of the stack pointers within a range of this many bytes, one is kept.
const APART: u64 = 16 << 10;
/// The most stack pointers that are kept.
const MOST_STACKS: usize = 4096;

/// The threads of one process.
#[derive(Debug)]
pub struct Threads {
    first: ThreadId,
    names: HashMap<ThreadId, String>,
    seen: FxHashMap<ThreadId, ThreadRecord>,
    /// Stack pointers that any thread ever had, by their range of memory.
    stood: BTreeMap<u64, u64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct ThreadRecord {
    samples: u64,
    /// The stack pointer of the latest sample.
    stack_pointer: u64,
}

impl Threads {
    /// Only the first thread of `process` is known.
    pub fn of(process: ProcessId) -> Self {
        Self {
            first: ThreadId(process.0),
            names: HashMap::new(),
            seen: FxHashMap::default(),
            stood: BTreeMap::new(),
        }
    }

    /// Sets a thread's name.
    pub fn name(&mut self, thread: ThreadId, name: String) {
        if !name.is_empty() {
            self.names.insert(thread, name);
        }
    }

    /// The name of the process: that of its first thread.
    pub fn process_name(&self) -> Option<String> {
        self.names.get(&self.first).cloned()
    }

    /// Sets the name of the first thread if it has none: a forked process has its parent's name
    /// at first.
    pub fn inherit_name(&mut self, name: String) {
        self.names.entry(self.first).or_insert(name);
    }

    /// Takes over the names of another process's threads.
    pub fn take_names(&mut self, others: &Self) {
        let names = others.seen.keys().filter_map(|id| {
            let name = others.label(*id).name?;
            Some((*id, name))
        });
        self.names.extend(names);
    }

    /// Adds a thread that exists.
    pub fn started(&mut self, thread: ThreadId) {
        self.seen.entry(thread).or_default();
    }

    /// Adds a thread that was running with this stack pointer.
    pub fn sampled(&mut self, thread: ThreadId, stack_pointer: u64) {
        let seen = self.seen.entry(thread).or_default();
        seen.samples += 1;
        let is_near = seen.stack_pointer / APART == stack_pointer / APART;
        seen.stack_pointer = stack_pointer;
        if !is_near && self.stood.len() < MOST_STACKS {
            self.stood.insert(stack_pointer / APART, stack_pointer);
        }
    }

    /// The stack pointers in `start..end` that threads ever had, on their own stacks or on
    /// others that the program made.
    pub fn stood_in(&self, start: u64, end: u64) -> impl Iterator<Item = u64> {
        let parts = self.stood.range(start / APART..=end / APART);
        parts
            .map(|(_, at)| *at)
            .filter(move |at| (start..end).contains(at))
    }

    /// The number of known threads.
    pub fn count(&self) -> u32 {
        u32::try_from(self.seen.len()).unwrap_or(u32::MAX)
    }

    /// All known threads, in no order.
    pub fn all(&self) -> impl Iterator<Item = ThreadId> {
        self.seen.keys().copied()
    }

    /// A stack pointer of each thread that was seen running.
    pub fn stack_pointers(&self) -> impl Iterator<Item = (ThreadId, u64)> {
        self.seen
            .iter()
            .filter(|(_, seen)| seen.samples > 0)
            .map(|(thread, seen)| (*thread, seen.stack_pointer))
    }

    /// The thread as a report names it. A name that it has inherited from the process says
    /// nothing and is left out.
    pub fn label(&self, thread: ThreadId) -> findings::Thread {
        let inherited = self.names.get(&self.first);
        let name = self
            .names
            .get(&thread)
            .filter(|name| Some(*name) != inherited);
        findings::Thread {
            id: thread.0,
            name: name.cloned(),
        }
    }
}
