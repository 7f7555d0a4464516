//! Divides addresses into subjects, by which pages are described: all blocks of one call stack
//! are one subject, each variable is one, and memory without a name is one for each mapping. A
//! subject is named at its first access.

use rustc_hash::FxHashMap;
use std::collections::{BTreeMap, HashMap};
use sunder_access::{Address, CodeAddress, Span, ThreadId};
use sunder_objects::{CodeFrame, HeapBlock, ObjectContext, ObjectKind, ObjectName};
use sunder_pipeline::ObjectKey;
use sunder_pipeline::Process;

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
    /// Subjects of addresses that are in no variable.
    elsewhere: FxHashMap<u64, u32>,
}

/// A block, as its allocation tells it.
#[derive(Clone, Copy, Debug)]
pub struct BlockOf {
    /// Its first byte.
    pub start: Address,
    /// Requested bytes.
    pub size: u64,
    /// The thread that allocated it.
    pub thread: ThreadId,
}

/// The blocks of one call stack.
#[derive(Clone, Copy, Debug)]
pub struct BlocksOf {
    /// The first of them.
    pub first: BlockOf,
    /// Their number.
    pub count: u64,
    /// Requested bytes, if they are those of all.
    pub size: Option<u64>,
    /// The thread, if it allocated all.
    pub thread: Option<ThreadId>,
}

impl BlocksOf {
    /// One block alone.
    pub const fn one(block: BlockOf) -> Self {
        Self {
            first: block,
            count: 1,
            size: Some(block.size),
            thread: Some(block.thread),
        }
    }
}

impl Subjects {
    /// No subjects yet, of a trace with these call stacks.
    pub fn new(stacks: FxHashMap<u32, Vec<CodeAddress>>) -> Self {
        Self {
            all: Vec::new(),
            by_key: HashMap::new(),
            by_stack: FxHashMap::default(),
            stacks,
            variables: BTreeMap::new(),
            elsewhere: FxHashMap::default(),
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

    /// The subject of a block of this call stack.
    pub fn block(&mut self, process: &mut Process, block: BlockOf, stack: u32) -> u32 {
        self.blocks(process, BlocksOf::one(block), stack)
    }

    /// The subject of blocks of this call stack. Subjects are numbered by their first blocks, so those
    /// must come in order.
    pub fn blocks(&mut self, process: &mut Process, blocks: BlocksOf, stack: u32) -> u32 {
        let number = match self.by_stack.get(&stack) {
            Some(&known) => known,
            None => {
                let BlockOf {
                    start,
                    size,
                    thread,
                } = blocks.first;
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
        subject.blocks += blocks.count;
        let size = blocks.size.map(|size| size.max(1));
        if size.is_none() || subject.name.size != size {
            // Size and type of the first block do not hold for all blocks.
            subject.name.size = None;
            if let Some(of) = &mut subject.name.type_name {
                of.truncate(of.find('[').unwrap_or(of.len()));
            }
        }
        if blocks.thread.is_none() || subject.name.thread != blocks.thread {
            subject.name.thread = None;
        }
        number
    }

    /// The subject of the blocks of this call stack, if there was one.
    pub fn of_stack(&self, stack: u32) -> Option<u32> {
        self.by_stack.get(&stack).copied()
    }

    /// Forgets the subjects of addresses outside of variables: more is known now about the stacks.
    pub fn look_again(&mut self) {
        self.elsewhere.clear();
    }

    /// The subject of `address`, which is in no live block. It stays the same until
    /// [`Self::look_again`], so for parts of a trace it is enough to ask once for each address, in the
    /// order of first accesses.
    pub fn other(&mut self, process: &mut Process, address: Address) -> u32 {
        if let Some(&known) = self.elsewhere.get(&address.0) {
            return known;
        }
        let before = self.variables.range(..=address.0).next_back();
        if let Some((_, &(end, number))) = before
            && address.0 < end
        {
            return number;
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
        self.elsewhere.insert(address.0, number);
        number
    }
}

/// The name of heap memory that no live block holds: the allocator's own data, and freed
/// blocks.
const BETWEEN_BLOCKS: &str = "heap memory outside of blocks";

/// The name of memory whose mapping is not known: stacks, and anonymous mappings.
const UNNAMED: &str = "memory without a name";
