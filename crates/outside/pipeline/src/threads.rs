//! The threads of a process: names, and the order in which they appeared. Kept
//! from events; reads nothing itself.

use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use sunder_access::{ProcessId, ThreadId};
use sunder_findings as findings;

/// Of stack pointers that lie within so many bytes of each other one is kept.
const APART: u64 = 16 << 10;
/// So many are kept.
const MOST_STACKS: usize = 4096;

/// What is known of the threads of one process.
#[derive(Debug)]
pub struct Threads {
    first: ThreadId,
    names: HashMap<ThreadId, String>,
    seen: FxHashMap<ThreadId, Seen>,
    /// Stack pointers that any of them ever had, by their part of memory.
    stood: BTreeMap<u64, u64>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Seen {
    samples: u64,
    /// The stack pointer of the latest sample.
    stack_pointer: u64,
}

impl Threads {
    /// No thread but the first of `process` is known yet.
    pub fn of(process: ProcessId) -> Self {
        Self {
            first: ThreadId(process.0),
            names: HashMap::new(),
            seen: FxHashMap::default(),
            stood: BTreeMap::new(),
        }
    }

    /// A thread took a name.
    pub fn name(&mut self, thread: ThreadId, name: String) {
        if !name.is_empty() {
            self.names.insert(thread, name);
        }
    }

    /// The name of the process: that of its first thread.
    pub fn process_name(&self) -> Option<String> {
        self.names.get(&self.first).cloned()
    }

    /// The same process under a new number has the same name at first.
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

    /// A thread is known to exist.
    pub fn started(&mut self, thread: ThreadId) {
        self.seen.entry(thread).or_default();
    }

    /// A thread was seen running, with this stack pointer.
    pub fn sampled(&mut self, thread: ThreadId, stack_pointer: u64) {
        let seen = self.seen.entry(thread).or_default();
        seen.samples += 1;
        let is_near = seen.stack_pointer / APART == stack_pointer / APART;
        seen.stack_pointer = stack_pointer;
        if !is_near && self.stood.len() < MOST_STACKS {
            self.stood.insert(stack_pointer / APART, stack_pointer);
        }
    }

    /// Where in `start..end` threads were ever seen to have their stacks, their own or
    /// others that the program made.
    pub fn stood_in(&self, start: u64, end: u64) -> impl Iterator<Item = u64> {
        let parts = self.stood.range(start / APART..=end / APART);
        parts
            .map(|(_, at)| *at)
            .filter(move |at| (start..end).contains(at))
    }

    /// How many there were.
    pub fn count(&self) -> u32 {
        u32::try_from(self.seen.len()).unwrap_or(u32::MAX)
    }

    /// All that are known, in no order.
    pub fn all(&self) -> impl Iterator<Item = ThreadId> {
        self.seen.keys().copied()
    }

    /// A stack pointer for each thread that was seen running.
    pub fn stack_pointers(&self) -> impl Iterator<Item = (ThreadId, u64)> {
        self.seen
            .iter()
            .filter(|(_, seen)| seen.samples > 0)
            .map(|(thread, seen)| (*thread, seen.stack_pointer))
    }

    /// How a report calls it. The name that a thread has from its process says
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
