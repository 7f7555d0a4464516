//! The objects that have bytes on a contended line, and what their types are. Used by the names of a
//! line, and where only the objects are wanted: the names of instructions take several times as long.

use super::spacing::{Spacing, Touch, is_bystander, operands};
use crate::process::Process;
use std::collections::{BTreeSet, HashMap};
use sunder_access::{Address, CodeAddress, ThreadId};
use sunder_objects::{
    CodeFrame, ObjectContext, ObjectKind, ObjectName, Storage, TypeHandle, is_c_library,
};
use sunder_sharing::{SiteUse, Verdict, WordUse};

/// Tells whether two objects are the same.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ObjectKey {
    /// Blocks from one call stack and of one size count as one object, because one change fixes
    /// them all.
    CallSite(Vec<String>, u64),
    /// A variable, by its start.
    Variable(u64),
    /// Memory without a name, by the record of the program's own that lies there: one change of the type
    /// fixes all of it.
    Record(String),
    /// Memory of which nothing is known, by the instructions that access it most.
    Code(Vec<u64>),
}

/// An object that has bytes on a line.
#[derive(Clone, Debug)]
pub struct Part {
    /// Its identity.
    pub key: ObjectKey,
    /// Its name.
    pub name: ObjectName,
    /// Writes and updates of it on this line.
    pub writes: u64,
    /// All accesses to it on this line.
    pub accesses: u64,
}

/// The objects on a line.
#[derive(Debug)]
pub struct LineObjects {
    /// Each once.
    pub(super) parts: Vec<Part>,
    /// For each word of the verdict the number of its object.
    pub(super) of_word: Vec<usize>,
    /// The numbers of the objects that count, the most written first.
    pub(super) order: Vec<usize>,
}

impl LineObjects {
    /// The objects that count, the most written first.
    pub fn ranked(&self) -> impl Iterator<Item = &Part> {
        self.order.iter().map(|&number| &self.parts[number])
    }

    /// The heap blocks on the line of `verdict` beside which other threads use another object: lines of
    /// their own would take them apart.
    pub fn blocks_apart(&self, verdict: &Verdict) -> impl Iterator<Item = &Part> {
        let mut users: Vec<BTreeSet<ThreadId>> = vec![BTreeSet::new(); self.parts.len()];
        for (word, &part) in verdict.words.iter().zip(&self.of_word) {
            users[part].extend(word.threads.iter().map(|used| used.thread));
        }
        let apart = move |n: usize| {
            let others = users
                .iter()
                .enumerate()
                .filter(|&(m, by)| m != n && !by.is_empty());
            let mut others = others.map(|(_, by)| by);
            !users[n].is_empty() && others.any(|by| by.is_disjoint(&users[n]))
        };
        let blocks = self.parts.iter().enumerate();
        blocks.filter_map(move |(n, part)| (is_block(&part.name) && apart(n)).then_some(part))
    }

    /// For each of all objects the pointer or type through which it was accessed.
    pub(super) fn seen_through(
        &self,
        process: &mut Process,
        verdict: &Verdict,
    ) -> Vec<Option<TypedPointer>> {
        let parts = self.parts.iter();
        let mut seen: Vec<Option<TypedPointer>> = parts
            .map(|part| seen_through(process, verdict, &part.name))
            .collect();
        share_types(&self.parts, &mut seen);
        seen
    }

    /// For each of the ranked objects the pointer or type through which it was accessed.
    pub fn ranked_types(
        &self,
        process: &mut Process,
        verdict: &Verdict,
    ) -> Vec<Option<TypedPointer>> {
        let seen = self.seen_through(process, verdict);
        self.order.iter().map(|&n| seen[n].clone()).collect()
    }
}

/// The typed pointer that most accesses to an object went through.
#[derive(Clone, Debug, PartialEq)]
pub struct TypedPointer {
    /// The pointer's name, if it says something about the object.
    pub variable: Option<String>,
    /// The type that it points to.
    pub type_name: String,
    /// That type, for queries.
    pub handle: TypeHandle,
    /// Whether it is a record of the program's own.
    pub own_record: bool,
    /// Whether a larger block is no array of it.
    pub is_head: bool,
    /// Its size in bytes; 0 if unknown.
    pub size: u64,
    /// Where objects of the type begin.
    pub(super) spacing: Spacing,
}

impl TypedPointer {
    /// The distance of elements, and the offset of the first one from the object's start; `None` if
    /// there is only one, or if they do not lie as in an array.
    pub fn elements(&self) -> Option<(u64, u64)> {
        match self.spacing {
            Spacing::Elements { stride, first } if self.size > 0 && stride >= self.size => {
                Some((stride, first))
            }
            _ => None,
        }
    }
}

/// The objects on the line of `verdict`.
pub fn objects_on_line(process: &mut Process, verdict: &Verdict) -> LineObjects {
    let mut parts: Vec<Part> = Vec::new();
    let mut of_word = Vec::new();
    for word in &verdict.words {
        let at = verdict.line.offset(i64::from(word.offset));
        let address = process.origin(at, verdict.owner);
        let known = parts.iter().position(|p| covers(&p.name, address));
        let index = known.unwrap_or_else(|| {
            let mut context = process.context_in(at, verdict.owner, (verdict.first, verdict.last));
            context
                .touched_by
                .extend(word.threads.iter().map(|u| u.thread));
            let name = object_at(process, verdict.line, address, &context);
            let key = key_of(process, &name, verdict);
            if let Some(same) = parts.iter().position(|p| p.key == key && p.name == name) {
                return same;
            }
            parts.push(Part {
                key,
                name,
                writes: 0,
                accesses: 0,
            });
            parts.len() - 1
        });
        let (writes, all) = counts(word);
        parts[index].writes += writes;
        parts[index].accesses += all;
        of_word.push(index);
    }
    let mut order = ranked(&parts);
    let users = |index: usize| {
        let own = of_word
            .iter()
            .zip(&verdict.words)
            .filter(move |(i, _)| **i == index);
        own.flat_map(|(_, word)| word.threads.iter().map(|u| u.thread))
    };
    // An object that hardly anybody touched is no neighbour to blame where the busiest one is
    // shared by itself.
    if let Some(&first) = order.first()
        && parts[first].writes > 0
        && users(first).collect::<BTreeSet<_>>().len() > 1
    {
        let most = parts[first].accesses;
        order.retain(|&i| !is_bystander(parts[i].accesses, most));
    }
    LineObjects {
        parts,
        of_word,
        order,
    }
}

/// Blocks from one call stack and of one size have one type. If only one of them was accessed
/// through a typed pointer, the others get its type.
fn share_types(parts: &[Part], seen: &mut [Option<TypedPointer>]) {
    for i in 0..parts.len() {
        let same = |j: &usize| {
            matches!(parts[i].key, ObjectKey::CallSite(..)) && parts[*j].key == parts[i].key
        };
        if seen[i].is_none() {
            seen[i] = (0..parts.len()).filter(same).find_map(|j| seen[j].clone());
        }
    }
}

/// The object at `address`.
fn object_at(
    process: &mut Process,
    line: Address,
    address: Address,
    context: &ObjectContext,
) -> ObjectName {
    let object = process.names.object_at(address, context);
    match object.kind {
        ObjectKind::Heap if context.heap.is_none() => without_extent(object, line),
        ObjectKind::Unknown => {
            let line = process.judge.config().granule().base(address);
            without_extent(object, line)
        }
        _ => object,
    }
}

/// The object where only the line is known: of a heap without records, whose mapping as a whole is no object,
/// and of memory whose mapping is gone. Two bytes of it on a line are no two objects.
fn without_extent(object: ObjectName, line: Address) -> ObjectName {
    ObjectName {
        name: None,
        size: None,
        start: line,
        ..object
    }
}

/// Whether the byte at `address` belongs to this object too. Where only the stack or the mapping is
/// known, another object may lie at the next byte.
fn covers(name: &ObjectName, address: Address) -> bool {
    let is_whole_stack = name.kind == ObjectKind::Stack && name.type_handle.is_none();
    !matches!(name.kind, ObjectKind::Unknown | ObjectKind::Mapping)
        && !is_whole_stack
        && name.span().is_some_and(|span| span.contains(address))
}

fn key_of(process: &mut Process, name: &ObjectName, verdict: &Verdict) -> ObjectKey {
    match name.kind {
        ObjectKind::Heap if !name.allocation.is_empty() => ObjectKey::CallSite(
            name.allocation.iter().map(CodeFrame::call_site).collect(),
            name.size.unwrap_or(0),
        ),
        ObjectKind::Global | ObjectKind::Tls => ObjectKey::Variable(name.start.0),
        ObjectKind::Heap if name.size.is_some() => ObjectKey::Variable(name.start.0),
        ObjectKind::Stack if name.name.is_some() => ObjectKey::Variable(name.start.0),
        _ => {
            if let Some(seen) = seen_through(process, verdict, name)
                && seen.own_record
            {
                return ObjectKey::Record(seen.type_name);
            }
            // The three busiest instructions: memory that the same code accesses most likely holds
            // the same kind of data.
            let mut code: Vec<u64> = verdict
                .sites
                .iter()
                .take(3)
                .map(|s| s.instruction.0)
                .collect();
            code.sort_unstable();
            // All locks are accessed by the same few instructions of the library, so its
            // instructions do not count.
            let of_library = |&i: &u64| {
                let frames = process.names.frames(CodeAddress(i));
                frames[0].module.as_deref().is_some_and(is_c_library)
            };
            if code.iter().all(of_library) {
                ObjectKey::Variable(verdict.line.0)
            } else {
                ObjectKey::Code(code)
            }
        }
    }
}

/// The indices of `parts`, the most written first.
fn ranked(parts: &[Part]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..parts.len()).collect();
    order.sort_by_key(|&i| {
        std::cmp::Reverse((parts[i].writes, parts[i].accesses, parts[i].key.clone()))
    });
    order
}

/// The writes and all accesses of a word.
fn counts(word: &WordUse) -> (u64, u64) {
    word.threads.iter().fold((0, 0), |(writes, all), u| {
        (
            writes + u.writes + u.updates,
            all + u.reads + u.writes + u.updates,
        )
    })
}

fn seen_through(
    process: &mut Process,
    verdict: &Verdict,
    object: &ObjectName,
) -> Option<TypedPointer> {
    let line = (verdict.line, verdict.owner);
    seen_by(process, line, &verdict.sites, object)
}

/// The typed pointer that most accesses to `object` on this line used, which has this owner. Each of the
/// instructions votes with its accesses. A vote for a block counts only if the operand lies where the type has
/// it, seen from the block's start.
pub fn seen_by(
    process: &mut Process,
    (line, owner): (Address, Option<u64>),
    sites: &[SiteUse],
    object: &ObjectName,
) -> Option<TypedPointer> {
    // A variable's type is known from its declaration; the type of a block is only suggested by
    // its allocation.
    if object.type_handle.is_some() && object.kind != ObjectKind::Heap {
        return None;
    }
    // What a pointer into the block has at the block's start is another type.
    if made_shared(object).is_some() {
        return None;
    }
    let mut votes: HashMap<TypeHandle, Votes> = HashMap::new();
    let whole = is_block(object);
    for site in sites {
        let Some(typed) = process.names.typed_access(site.instruction) else {
            continue;
        };
        let mut offset = |byte: u64| {
            let address = process.origin(line.offset(byte as i64), owner);
            let offset = object.offset_of(address)?;
            object
                .size
                .is_none_or(|size| offset < size)
                .then_some(offset)
        };
        let at: Vec<u64> = operands(site.bytes)
            .into_iter()
            .filter_map(&mut offset)
            .collect();
        let Some(&first) = at.first() else {
            continue;
        };
        let stride = typed.element_stride.max(1);
        // A block starts with an element. In other memory (custom allocators, unknown mappings)
        // only the operands tell where the type begins.
        let within = match (typed.offset_in_type, whole) {
            (Some(within), _) => within,
            (None, true) => first % stride,
            (None, false) => continue,
        };
        let misfit = whole && first % stride != within % stride;
        if typed.storage != Storage::Pointer || misfit {
            continue;
        }
        // The C library knows only a mutex or a futex word in what is a record of the user's.
        let frames = process.names.frames(site.instruction);
        let foreign = frames[0].module.as_deref().is_some_and(is_c_library);
        let fits = !whole || object.size == Some(typed.type_size);
        if foreign && !(typed.type_name.starts_with("pthread_") && fits) {
            continue;
        }
        let count = site.count.max(1);
        let exact = typed.exact;
        let voted = votes.entry(typed.type_handle).or_insert_with(|| Votes {
            count: 0,
            touches: Vec::new(),
            seen: TypedPointer {
                variable: typed
                    .variable
                    .filter(|v| !foreign && says_something(v))
                    // The pointer of a slice of Rust.
                    .map(|v| v.trim_end_matches(".data_ptr").to_owned()),
                type_name: typed.type_name,
                handle: typed.type_handle,
                own_record: typed.own_record,
                is_head: typed.is_head
                    || whole
                        && object
                            .size
                            .is_some_and(|size| !holds_elements(size, typed.type_size)),
                size: typed.type_size,
                spacing: Spacing::Elements { stride, first: 0 },
            },
        });
        voted.count += count;
        voted.touches.extend(at.into_iter().map(|at| Touch {
            start: (at as i64).wrapping_sub(within as i64),
            exact,
            count,
        }));
    }
    // A record type says more than a number type.
    let most = votes
        .into_values()
        .max_by_key(|voted| (voted.seen.own_record, voted.count, voted.seen.size))
        .filter(|voted| voted.seen.own_record || object.type_handle.is_none())?;
    let mut seen = most.seen;
    if !whole && let Spacing::Elements { stride, .. } = seen.spacing {
        seen.spacing = Spacing::of(&most.touches, stride)?;
    }
    Some(seen)
}

/// The accesses to an object through pointers to one type.
struct Votes {
    /// How many there are.
    count: u64,
    /// Where they tell that the type begins.
    touches: Vec<Touch>,
    seen: TypedPointer,
}

/// Whether a block of `size` bytes may be an array of elements of `each` bytes: it has room for two, and
/// less than a cache line is left behind the last one. Programs ask for that much more to let an array
/// begin a line; where more is left, the block holds something else beside one element.
const fn holds_elements(size: u64, each: u64) -> bool {
    const MOST_LEFT: u64 = 64;
    each > 0 && size / each >= 2 && size % each < MOST_LEFT
}

/// Whether `object` is a block of a heap that was recorded. Of another heap (a static program's, an
/// attached process's) the start of the block is not known.
pub(super) fn is_block(object: &ObjectName) -> bool {
    object.kind == ObjectKind::Heap && object.size.is_some()
}

/// The type of a block that `std::make_shared` made, which holds the counts of references too. The
/// functions of the library that allocated it name it.
pub fn made_shared(object: &ObjectName) -> Option<&str> {
    const ALLOCATOR: &str = "std::__new_allocator<";
    object.allocation.iter().find_map(|frame| {
        let inside = frame.function.strip_prefix(ALLOCATOR)?;
        let made = inside.split_once(">::allocate")?.0;
        made.starts_with("std::make_shared<").then_some(made)
    })
}

/// Whether a pointer's name says something about the object. Every method has a `this`, and
/// libraries name parameters for their own purposes.
fn says_something(variable: &str) -> bool {
    !matches!(variable, "this" | "self") && !variable.starts_with("__")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As in a mapping that was moved before its lines were named: what one instruction uses there are
    /// neighbours of one type, and no two variables.
    #[test]
    fn bytes_of_a_line_in_no_mapping_are_one_object() {
        let at = |start| ObjectName {
            start: Address(start),
            ..ObjectName::default()
        };
        let line = Address(0x1000);
        let (one, other) = (
            without_extent(at(0x1008), line),
            without_extent(at(0x1028), line),
        );
        assert_eq!(one, other);
        assert_eq!(other.offset_of(Address(0x1028)), Some(0x28));
    }

    #[test]
    fn a_block_is_an_array_if_little_is_left_behind_its_elements() {
        assert!(holds_elements(128, 16));
        // As programs do that let an array begin a line.
        assert!(holds_elements(128 + 63, 16));
        // A member before a counter; a head before bytes.
        assert!(!holds_elements(96, 88));
        assert!(!holds_elements(2218, 160));
        assert!(!holds_elements(16, 0));
    }
}
