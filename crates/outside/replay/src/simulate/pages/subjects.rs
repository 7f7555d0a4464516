//! Divides addresses into subjects, by which pages are described: all blocks of one call stack
//! are one subject, each variable is one, and memory without a name is one for each mapping. A
//! subject is named at its first access.

use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use sunder_access::{Address, CodeAddress, Span, ThreadId};
use sunder_objects::{CodeFrame, HeapBlock, ObjectContext, ObjectKind, ObjectName};
use sunder_pipeline::ObjectKey;
use sunder_pipeline::Process;
use sunder_trace::read::Trace;

/// A subject.
#[derive(Clone, Debug)]
pub struct Subject {
    /// Its name. Without a size if its blocks have several.
    pub name: ObjectName,
    /// The number of its blocks; 0 if it is not made of blocks.
    pub blocks: u64,
}

/// All subjects that were met.
pub struct Subjects {
    all: Vec<Subject>,
    by_key: HashMap<ObjectKey, u32>,
    by_stack: FxHashMap<u32, u32>,
    stacks: FxHashMap<u32, Vec<CodeAddress>>,
    /// Variables by their start: end and subject.
    variables: BTreeMap<u64, (u64, u32)>,
    /// Subjects of words that are in no variable.
    words: FxHashMap<u64, u32>,
}

impl Subjects {
    /// No subjects yet.
    pub fn new(trace: &Trace) -> Self {
        Self {
            all: Vec::new(),
            by_key: HashMap::new(),
            by_stack: FxHashMap::default(),
            stacks: trace.stacks().map(|(id, f)| (id, f.to_vec())).collect(),
            variables: BTreeMap::new(),
            words: FxHashMap::default(),
        }
    }

    /// The subject with this number.
    pub fn get(&self, number: u32) -> &Subject {
        &self.all[number as usize]
    }

    fn subject(&mut self, key: ObjectKey, name: impl FnOnce() -> ObjectName) -> u32 {
        let all = &mut self.all;
        *self.by_key.entry(key).or_insert_with(|| {
            all.push(Subject {
                name: name(),
                blocks: 0,
            });
            all.len() as u32 - 1
        })
    }

    /// The subject of a block.
    pub fn block(
        &mut self,
        process: &mut Process,
        start: Address,
        size: u64,
        stack: u32,
        thread: ThreadId,
    ) -> u32 {
        let number = match self.by_stack.get(&stack) {
            Some(&known) => known,
            None => {
                let block = HeapBlock {
                    span: Span::new(start, size.max(1)),
                    allocation: self.stacks.get(&stack).cloned().unwrap_or_default(),
                    thread: Some(thread),
                    freed: false,
                };
                let context = ObjectContext {
                    heap: Some(block),
                    ..ObjectContext::default()
                };
                let name = process.names.object_at(start, &context);
                let frames = name.allocation.iter().map(CodeFrame::call_site);
                let key = ObjectKey::CallSite(frames.collect(), 0);
                let number = self.subject(key, || name);
                self.by_stack.insert(stack, number);
                number
            }
        };
        let subject = &mut self.all[number as usize];
        subject.blocks += 1;
        if subject.name.size != Some(size.max(1)) {
            // Size and type of the first block do not hold for all blocks.
            subject.name.size = None;
            if let Some(of) = &mut subject.name.type_name {
                of.truncate(of.find('[').unwrap_or(of.len()));
            }
        }
        if subject.name.thread != Some(thread) {
            subject.name.thread = None;
        }
        number
    }

    /// Forgets the subjects of single words: more is known now about the stacks.
    pub fn look_again(&mut self) {
        self.words.clear();
    }

    /// The subject of `address`, which is in no live block.
    pub fn other(&mut self, process: &mut Process, address: Address) -> u32 {
        let before = self.variables.range(..=address.0).next_back();
        if let Some((_, &(end, number))) = before
            && address.0 < end
        {
            return number;
        }
        let word = address.0 / 8;
        if let Some(&known) = self.words.get(&word) {
            return known;
        }
        let context = process.context(address, None);
        let mut name = process.names.object_at(address, &context);
        // A stack as a whole contains variables, so it is not kept as one.
        let variable = match name.kind {
            ObjectKind::Global | ObjectKind::Tls => true,
            ObjectKind::Stack => name.declared.is_some(),
            _ => false,
        };
        if variable && let Some(span) = name.span().filter(|span| span.contains(address)) {
            let key = ObjectKey::Variable(span.start.0);
            let number = self.subject(key, || name);
            self.variables.insert(span.start.0, (span.end().0, number));
            return number;
        }
        if name.kind == ObjectKind::Heap {
            name.name = Some(BETWEEN_BLOCKS.to_owned());
        }
        if name.kind == ObjectKind::Unknown {
            name.name = Some(UNNAMED.to_owned());
        }
        let called = name.name.clone().unwrap_or_default();
        let key = ObjectKey::CallSite(vec![called], 0);
        let number = self.subject(key, || name);
        self.words.insert(word, number);
        number
    }
}

/// The name of heap memory that no live block holds: the allocator's own data, and freed
/// blocks.
const BETWEEN_BLOCKS: &str = "heap memory outside of blocks";

/// The name of memory whose mapping is not known: stacks, and anonymous mappings.
const UNNAMED: &str = "memory without a name";
