//! The objects on contended lines, and the elements that they are made of. Called by `pattern`. It must
//! not decide whose bytes they are.

use std::collections::{BTreeMap, HashMap};
use sunder_access::{Address, LINE, PAGE, Span};
use sunder_objects::ObjectKind;
use sunder_pipeline::Process;
use sunder_pipeline::name_line;
use sunder_plan::remap::Extent;
use sunder_sharing::Verdict;
use sunder_wire::remap::MOST_MOVED;

/// An object on contended lines.
#[derive(Clone, Copy, Debug)]
pub struct Object {
    /// Its bytes.
    pub span: Span,
    /// The bytes of an element, if it is made of elements.
    element: Option<u64>,
    /// The offset of the first whole element.
    first: u64,
    /// Whether it is a block of the heap.
    is_block: bool,
}

impl Object {
    /// It, seen from the start of the pages.
    pub const fn extent(&self, page: u64) -> Extent {
        let (span, first) = (self.span, self.first);
        Extent {
            start: (span.start.0 + first).wrapping_sub(page) as i64,
            size: span.len.saturating_sub(first),
            element: self.element,
        }
    }

    /// A line of which nothing else is known.
    const fn line(line: Address) -> Self {
        Self {
            span: Span::new(line, LINE),
            element: None,
            first: 0,
            is_block: false,
        }
    }

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

/// From this number on, blocks of one size at equal distances count as a row.
const BLOCKS: usize = 6;

/// The objects on lines that were looked at before, since naming takes time.
#[derive(Default)]
pub struct Objects(HashMap<u64, Vec<Object>>);

impl Objects {
    /// The objects on these lines; a line itself where its object is not known.
    pub fn on<'a>(
        &mut self,
        process: &mut Process,
        lines: impl Iterator<Item = &'a Verdict>,
    ) -> Vec<Object> {
        let mut all: Vec<Object> = Vec::new();
        let mut nameless: Vec<Object> = Vec::new();
        for line in lines {
            let here = self.0.entry(line.line.0);
            let here = here.or_insert_with(|| objects_on(process, line));
            if here.is_empty() {
                nameless.push(Object::line(line.line));
            }
            here.iter().for_each(|one| take_in(&mut all, *one));
        }
        // What is known of one line holds for the others of its object.
        nameless.into_iter().for_each(|one| take_in(&mut all, one));
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

/// Adds an object to those that are known, unless it is one of them.
fn take_in(all: &mut Vec<Object>, one: Object) {
    match all.iter_mut().find(|known| known.span.overlaps(one.span)) {
        None => all.push(one),
        // The code that uses one line may tell what the memory is made of, that of another may not.
        Some(known) if known.span == one.span && known.element.is_none() => *known = one,
        Some(_) => {}
    }
}

/// The objects on a line that are known.
fn objects_on(process: &mut Process, line: &Verdict) -> Vec<Object> {
    let named = name_line(process, line);
    let seen = named.seen_through.iter().map(Option::as_ref);
    let known = named.parts.iter().zip(seen).filter_map(|(part, seen)| {
        let span = part.name.span().filter(|span| span.len > 0)?;
        // Memory without a type of its own may still be used as elements of one.
        // The sizes are what the program's debug information says, whatever that is.
        let seen = seen.and_then(|s| s.elements());
        let (element, first) = match (part.name.element_size, seen) {
            (None, Some((element, first))) if element <= MOST_MOVED => (Some(element), first),
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
    known.collect()
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

    #[test]
    fn what_is_known_better_of_one_line_holds_for_the_others() {
        let mapping = |element| Object {
            span: Span::new(Address(0x10_0000), 0x1000),
            element,
            first: 0,
            is_block: false,
        };
        let mut all = Vec::new();
        for one in [mapping(None), mapping(Some(24)), mapping(None)] {
            take_in(&mut all, one);
        }
        take_in(&mut all, Object::line(Address(0x10_0040)));
        take_in(&mut all, Object::line(Address(0x20_0040)));
        let known: Vec<_> = all.iter().map(|o| (o.span.start.0, o.element)).collect();
        assert_eq!(known, [(0x10_0000, Some(24)), (0x20_0040, None)]);
    }
}
