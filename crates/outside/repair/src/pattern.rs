//! How threads use contended lines and the memory around them, and into which groups the bytes are
//! taken apart. Called by `choose` at each look. It must not decide whether something is moved, or
//! move it.

use super::layout::have_room;
use super::lines::can_come_apart;
use super::movable::can_be_moved;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::time::Duration;
use sunder_access::{Address, LINE, PAGE, Span, Time};
use sunder_objects::ObjectKind;
use sunder_pipeline::Process;
use sunder_pipeline::name_line;
use sunder_plan::remap::{
    Count, Extent, Group, Grouping, Unmoved, Use, groups, whole_elements, widen,
};
use sunder_sharing::{Sharing, ThreadUse, Verdict, WordUse};
use sunder_wire::remap::{GROUPS, MOST_MOVED};

/// A word that was seen less often than this may just as well be used by other threads.
const SEEN: u64 = 4;
/// The same for a word that is used this many times less often than the busiest word of its line.
const SELDOM: u64 = 32;
/// Beside contended lines, a thread that has not run for this long is left out: it cannot contend.
const OFF_CPU_LIMIT: Duration = Duration::from_millis(30);
/// The same for threads that contended for the line, whose use of it is more than chance.
const GONE: Duration = Duration::from_millis(500);

/// An object: its bytes, the size of an element, and the offset of the first one.
#[derive(Clone, Copy, Debug)]
struct Object {
    span: Span,
    element: Option<u64>,
    first: u64,
    /// Whether it is a block of the heap.
    is_block: bool,
}

impl Object {
    /// Its part on a page.
    fn on_page(self, page: u64, element: u64) -> Option<Self> {
        let start = self.span.start.0.max(page);
        let end = self.span.end().0.min(page + PAGE);
        let before = start - self.span.start.0;
        let first = match self.first.checked_sub(before) {
            Some(later) => later,
            None => (element - (before - self.first) % element) % element,
        };
        let span = Span::new(Address(start), end.checked_sub(start)?);
        (first < span.len).then_some(Self {
            span,
            first,
            ..self
        })
    }
}

/// As many blocks of one size at equal distances are a row.
const BLOCKS: usize = 6;

/// The objects on lines that were looked at before, since naming takes time.
#[derive(Default)]
pub struct Objects(HashMap<u64, Vec<Object>>);

/// Pages, and the groups that go to lines of their own.
#[derive(Clone, Debug)]
pub struct Apart {
    /// Address of the first page.
    pub page: u64,
    /// Length of the pages in bytes.
    pub len: u64,
    /// The groups, and how much they take apart.
    pub grouping: Grouping,
}

impl Objects {
    /// The objects on these lines; a line itself where its object is not known.
    fn on<'a>(
        &mut self,
        process: &mut Process,
        lines: impl Iterator<Item = &'a Verdict>,
    ) -> Vec<Object> {
        let mut all: Vec<Object> = Vec::new();
        for line in lines {
            let here = self.0.entry(line.line.0);
            let here = here.or_insert_with(|| objects_on(process, line));
            for one in here.iter() {
                if !all.iter().any(|known| known.span.overlaps(one.span)) {
                    all.push(*one);
                }
            }
        }
        let heap = process.heap();
        in_rows(all, &|start, size| {
            let block = heap.and_then(|heap| heap.segment.block_at(Address(start)));
            block.is_some_and(|b| b.span == Span::new(Address(start), size) && b.freed.is_none())
        })
    }
}

/// The objects, of which blocks of the heap of one size at equal distances count as one: where blocks
/// are allocated for all threads in turn, those that were not seen in use are like elements that were not.
/// `is_block`: whether a block in use has this start and size.
fn in_rows(objects: Vec<Object>, is_block: &dyn Fn(u64, u64) -> bool) -> Vec<Object> {
    let mut sizes: BTreeMap<u64, Vec<u64>> = BTreeMap::new();
    let blocks = objects.iter().filter(|object| object.is_block);
    blocks.for_each(|block| {
        let starts = sizes.entry(block.span.len).or_default();
        starts.push(block.span.start.0);
    });
    let mut all = objects;
    for (size, mut starts) in sizes {
        starts.sort_unstable();
        let apart = starts.windows(2).map(|pair| pair[1] - pair[0]);
        let (step, row) = match (&starts[..], apart.reduce(gcd)) {
            (&[mut first, .., mut last], Some(step)) if starts.len() >= BLOCKS && step >= size => {
                while last - first < MOST_MOVED && is_block(last + step, size) {
                    last += step;
                }
                while last - first < MOST_MOVED && first > step && is_block(first - step, size) {
                    first -= step;
                }
                (step, Span::new(Address(first), last - first + step))
            }
            _ => continue,
        };
        let of_row = |one: &Object| one.is_block && one.span.len == size;
        if row.len <= MOST_MOVED && !all.iter().any(|one| !of_row(one) && one.span.overlaps(row)) {
            all.retain(|one| !of_row(one));
            all.push(Object {
                span: row,
                element: Some(step),
                first: 0,
                is_block: false,
            });
        }
    }
    all
}

const fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        gcd(other, one % other)
    }
}

fn objects_on(process: &mut Process, line: &Verdict) -> Vec<Object> {
    let named = name_line(process, line);
    let seen = named.seen_through.iter().map(Option::as_ref);
    let known = named.parts.iter().zip(seen).filter_map(|(part, seen)| {
        let span = part.name.span().filter(|span| span.len > 0)?;
        // Memory without a type of its own may still be used as elements of one.
        let (element, first) = match (part.name.element_size, seen.and_then(|s| s.elements())) {
            (None, Some((element, first))) => (Some(element), first),
            (known, _) => (known, 0),
        };
        let whole = Object {
            span,
            element,
            first,
            is_block: part.name.kind == ObjectKind::Heap,
        };
        match element {
            _ if span.len <= MOST_MOVED => Some(whole),
            Some(element) if element > 0 => whole.on_page(line.line.0 & !(PAGE - 1), element),
            _ => None,
        }
    });
    let known: Vec<Object> = known.collect();
    match known[..] {
        [] => vec![Object {
            span: Span::new(line.line, LINE),
            element: None,
            first: 0,
            is_block: false,
        }],
        _ => known,
    }
}

/// How the lines of `settled` on these pages are taken apart: by `uses` if given, else by the
/// accesses that were seen. If the objects on them go on on neighbouring pages, and the same
/// threads use them there, these pages are included, unless they are among the `taken` ones.
///
/// # Errors
/// If moving would not help, or there would be too many groups.
pub fn take_apart(
    process: &mut Process,
    objects: &mut Objects,
    settled: &[&Verdict],
    (page, len): (u64, u64),
    uses: Option<&[Use]>,
    taken: &HashSet<u64>,
) -> Result<Apart, Unmoved> {
    let first = match uses {
        Some(uses) => groups(uses, GROUPS)?,
        None => groups(&seen(process, settled, page, len), GROUPS)?,
    };
    let lines = settled.iter().copied().filter(|v| on(v, page, len));
    let objects = objects.on(process, lines);
    let beside = beside(process, &objects);
    let wide = around(&first.groups, &objects, &beside, (page, len));
    let mut new = (0..wide.1 / PAGE).map(|n| wide.0 + n * PAGE);
    let grown =
        wide != (page, len) && uses.is_none() && !new.any(|page| taken.contains(&page)) && {
            let mappings = process.mappings().clone();
            can_be_moved(process, &mappings, wide.0, wide.1).is_ok()
        };
    let (page, len) = if grown { wide } else { (page, len) };
    let mut all = match uses {
        Some(uses) => uses.to_vec(),
        None => seen(process, settled, page, len),
    };
    let mut found = if grown { groups(&all, GROUPS)? } else { first };
    let there = beside.iter().filter(|(at, _)| at.0 >= page);
    all.extend(there.map(|(at, word)| used(word, at.0 - page)));
    let extents: Vec<Extent> = objects.iter().map(|o| extent(o, page)).collect();
    let whole = whole_elements(&found.groups, &all, &extents, len);
    let wide = widen(&whole, &all, &extents, len);
    if wide.len() <= GROUPS && have_room(&wide) {
        found.groups = wide;
    }
    Ok(Apart {
        page,
        len,
        grouping: found,
    })
}

fn on(line: &Verdict, page: u64, len: u64) -> bool {
    line.line.0.wrapping_sub(page) < len
}

/// The accesses that were seen to the lines on these pages that can come apart, without those of
/// threads that do not run any more. Bytes of other lines stay together.
pub fn seen(process: &Process, settled: &[&Verdict], page: u64, len: u64) -> Vec<Use> {
    let since = latest(process, GONE);
    let times = process.judge.thread_time();
    let gone = times.iter().filter(|t| t.last < since);
    let gone: BTreeSet<u32> = gone.map(|t| t.thread.0).collect();
    let lines = settled.iter().filter(|v| on(v, page, len));
    let apart = lines.filter(|v| can_come_apart(v));
    apart.flat_map(|v| uses(v, page, &gone)).collect()
}

/// The time that lies `before` the last event.
fn latest(process: &Process, before: Duration) -> Time {
    let last = process.judge.span_of_time().map_or(Time(0), |time| time.1);
    last.before(before)
}

const fn extent(object: &Object, page: u64) -> Extent {
    let (span, first) = (object.span, object.first);
    Extent {
        start: (span.start.0 + first).wrapping_sub(page) as i64,
        size: span.len.saturating_sub(first),
        element: object.element,
    }
}

/// The accesses of running threads to these objects, on any line.
fn beside(process: &Process, objects: &[Object]) -> Vec<(Address, WordUse)> {
    let since = latest(process, OFF_CPU_LIMIT);
    let spans = objects.iter().map(|o| o.span);
    let mut all: Vec<_> = spans
        .flat_map(|span| process.judge.used(span, since))
        .collect();
    all.sort_by_key(|(at, word)| (*at, word.size));
    all.dedup();
    all
}

/// The pages, with neighbouring pages on which the threads of the groups use the same objects.
fn around(
    groups: &[Group],
    objects: &[Object],
    beside: &[(Address, WordUse)],
    (page, len): (u64, u64),
) -> (u64, u64) {
    let (mut from, mut to) = (page, page + len);
    for Object { span, .. } in objects {
        let inside = |g: &&Group| Span::new(Address(page + g.offset), g.size).overlaps(*span);
        for (at, word) in beside.iter().filter(|(at, _)| span.contains(*at)) {
            let users = used(word, 0).users();
            let mut owners = groups.iter().filter(inside);
            if owners.any(|group| users.is_subset(&group.threads)) {
                from = from.min(at.0 & !(PAGE - 1));
                to = to.max((at.0 + u64::from(word.size)).next_multiple_of(PAGE));
            }
        }
    }
    if to - from <= MOST_MOVED {
        (from, to - from)
    } else {
        (page, len)
    }
}

/// The accesses to the words of a line, at offsets from `page`. If threads share some bytes of the
/// line truly, rarely used words are left out: a few accesses do not tell whose a word is.
fn uses(verdict: &Verdict, page: u64, gone: &BTreeSet<u32>) -> Vec<Use> {
    let mut uses: BTreeMap<u64, Use> = BTreeMap::new();
    for word in &verdict.words {
        let offset = verdict.line.0 + u64::from(word.offset) - page;
        let here = uses.entry(offset).or_insert_with(|| Use {
            offset,
            ..Use::default()
        });
        let new = used(word, offset);
        here.size = here.size.max(new.size);
        let there = new.threads.into_iter().filter(|t| !gone.contains(&t.0));
        there.for_each(|(thread, count)| here.add(thread, count));
    }
    uses.retain(|_, used| !used.threads.is_empty());
    let mixed = verdict.sharing == Sharing::Mixed;
    let most = uses.values().map(Use::accesses).max().unwrap_or(0);
    let seen = |u: &Use| !mixed || u.accesses() >= SEEN.max(most / SELDOM);
    uses.into_values().filter(seen).collect()
}

/// The accesses to a word, at `offset`.
pub fn used(word: &WordUse, offset: u64) -> Use {
    let mut used = Use {
        offset,
        size: word.size.into(),
        ..Use::default()
    };
    for one in &word.threads {
        used.add(one.thread.0, count(one));
    }
    used
}

const fn count(one: &ThreadUse) -> Count {
    Count {
        reads: one.reads,
        writes: one.writes + one.updates,
        atomics: one.atomics,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_an_object_has_its_own_first_element() {
        let whole = Object {
            span: Span::new(Address(0x10_0010), 0x4_0000),
            element: Some(24),
            first: 8,
            is_block: false,
        };
        // Elements begin at 0x10_0018 and each 24 bytes after that.
        let part = |page: u64| {
            let part = whole.on_page(page, 24).expect("it is there");
            (
                part.span.start.0,
                part.span.len,
                part.span.start.0 + part.first,
            )
        };
        assert_eq!(part(0x10_0000), (0x10_0010, 0xff0, 0x10_0018));
        let (start, len, first) = part(0x10_3000);
        assert_eq!((start, len), (0x10_3000, 0x1000));
        assert!(first < 0x10_3000 + 24 && (first - 0x10_0018).is_multiple_of(24));
        assert_eq!(part(0x14_0000).1, 0x10, "the end");
    }

    fn block(start: u64, len: u64) -> Object {
        Object {
            span: Span::new(Address(start), len),
            element: None,
            first: 0,
            is_block: true,
        }
    }

    #[test]
    fn blocks_in_turn_are_elements_of_one_row() {
        // Of blocks of 20 bytes, each 32 after the other, some were seen.
        let seen = [0, 1, 2, 4, 5, 7].map(|n| block(0x10_0010 + 32 * n, 20));
        let rows = in_rows(seen.to_vec(), &|_, _| false);
        let [row] = rows[..] else {
            panic!("{rows:?}");
        };
        assert_eq!((row.span.start.0, row.span.len), (0x10_0010, 8 * 32));
        assert_eq!((row.element, row.first), (Some(32), 0));
        // Two more blocks lie behind them, and one before.
        let there = |start: u64, size: u64| {
            size == 20 && [0x0f_fff0, 0x10_0110, 0x10_0130].contains(&start)
        };
        let row = in_rows(seen.to_vec(), &there)[0];
        assert_eq!((row.span.start.0, row.span.len), (0x0f_fff0, 11 * 32));
        assert_eq!(
            in_rows(seen[1..].to_vec(), &|_, _| false).len(),
            5,
            "too few"
        );
        // Another object lies between them.
        let mut mixed = seen.to_vec();
        mixed.push(block(0x10_0010 + 32 * 3, 24));
        assert_eq!(in_rows(mixed, &|_, _| false).len(), 7);
    }
}
