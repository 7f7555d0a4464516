//! The objects on contended lines, and the elements that they are made of. Called by `pattern`. It must
//! not decide whose bytes they are.

use std::collections::{BTreeMap, HashMap, HashSet};
use sunder_access::{Address, LINE, PAGE, Span};
use sunder_objects::{ArrayPart, ObjectKind};
use sunder_pipeline::Process;
use sunder_pipeline::{Part, TypedPointer, objects_on_line, read_ahead};
use sunder_plan::remap::{Extent, Group};
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

    /// Whether debug information may say that other threads have elements of it beside these groups: not
    /// if it is a block of the heap that holds one group. The pages of the groups begin at `page`.
    pub fn may_have_elements(&self, groups: &[Group], page: u64) -> bool {
        let span = |group: &Group| Span::new(Address(page + group.offset), group.size);
        let within = groups
            .iter()
            .filter(|group| self.span.overlaps(span(group)));
        self.element.is_none() && (!self.is_block || within.count() > 1)
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
pub struct Objects {
    known: HashMap<u64, Vec<Object>>,
    /// Lines whose debug information is read ahead.
    foreseen: HashSet<u64>,
}

impl Objects {
    /// Begins to read what debug information tells of the objects on a line, if that has not begun.
    pub fn foresee(&mut self, process: &mut Process, line: &Verdict) {
        if self.foreseen.insert(line.line.0) {
            read_ahead(process, line);
        }
    }

    /// The objects on these lines; a line itself where its object is not known. The debug information
    /// is used only if `elements` are wanted, since to read it takes up to a tenth of a second; else only
    /// the blocks of the heap are known, and what was looked up before. Nor is it used as long as it is
    /// being read.
    pub fn on<'a>(
        &mut self,
        process: &mut Process,
        lines: impl Iterator<Item = &'a Verdict>,
        elements: bool,
    ) -> Vec<Object> {
        let lines: Vec<&Verdict> = lines.collect();
        let unknown = |line: &&Verdict| !self.known.contains_key(&line.line.0);
        let elements = elements && lines.iter().any(unknown) && !process.names.is_reading_ahead();
        if elements {
            // Objects are recognised by names, which need the present mappings.
            let mappings = process.mappings().clone();
            process.names.set_mappings(mappings);
        }
        let mut all: Vec<Object> = Vec::new();
        let mut nameless: Vec<Object> = Vec::new();
        for line in lines {
            let here = match self.known.get(&line.line.0) {
                Some(known) => known.clone(),
                None if elements => {
                    let found = objects_on(process, line);
                    self.known.insert(line.line.0, found.clone());
                    found
                }
                None => blocks_on(process, line),
            };
            if here.is_empty() {
                nameless.push(Object::line(line.line));
            }
            here.into_iter().for_each(|one| take_in(&mut all, one));
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

/// The blocks of the heap on a line.
fn blocks_on(process: &Process, line: &Verdict) -> Vec<Object> {
    let spans = line.words.iter().filter_map(|word| {
        let at = line.line.offset(i64::from(word.offset));
        let block = process
            .context_in(at, line.owner, (line.first, line.last))
            .heap?;
        (block.span.contains(at) && block.span.len <= MOST_MOVED).then_some(block.span)
    });
    let blocks = spans.map(|span| Object {
        span,
        element: None,
        first: 0,
        is_block: true,
    });
    blocks.collect()
}

/// The objects on a line that are known.
fn objects_on(process: &mut Process, line: &Verdict) -> Vec<Object> {
    let objects = objects_on_line(process, line);
    let parts: Vec<Part> = objects.ranked().cloned().collect();
    // How the code uses memory is looked up only where its type does not say enough.
    let seen = match parts.iter().all(|part| part.name.element_size.is_some()) {
        true => vec![None; parts.len()],
        false => objects.ranked_types(process, line),
    };
    let known = parts.iter().zip(&seen).flat_map(|(part, seen)| {
        let Some(span) = part.name.span().filter(|span| span.len > 0) else {
            return Vec::new();
        };
        // Memory without a type of its own may still be used as elements of one.
        // The sizes are what the program's debug information says, whatever that is.
        let seen = seen.as_ref().and_then(TypedPointer::elements);
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
        let page = line.line.0 & !(PAGE - 1);
        match element {
            // Arrays within it have elements, also if the whole has none or is one.
            _ if element.is_none_or(|size| size == span.len) && part.name.type_handle.is_some() => {
                let arrays = part.name.type_handle.map(|ty| process.names.arrays_in(ty));
                pieces(&whole, &arrays.unwrap_or_default(), page)
            }
            _ if span.len <= MOST_MOVED => vec![whole],
            Some(element) if element > 0 => whole.on_page(page, element).into_iter().collect(),
            _ => Vec::new(),
        }
    });
    known.collect()
}

/// An object, divided into the arrays in it and what lies between them. Of large arrays only the part on
/// the page counts.
fn pieces(whole: &Object, arrays: &[ArrayPart], page: u64) -> Vec<Object> {
    let mut all = Vec::new();
    let mut add = |from: u64, to: u64, element: Option<u64>| {
        let Some(len) = to.checked_sub(from).filter(|len| *len > 0) else {
            return;
        };
        let piece = Object {
            span: Span::new(Address(from), len),
            element,
            first: 0,
            is_block: whole.is_block && element.is_none() && len == whole.span.len,
        };
        match element {
            _ if len <= MOST_MOVED => all.push(piece),
            Some(element) => all.extend(piece.on_page(page, element)),
            None => {}
        }
    };
    let (start, end) = (whole.span.start.0, whole.span.end().0);
    let mut done = start;
    for array in arrays {
        let from = start.saturating_add(array.offset).min(end);
        let to = from.saturating_add(array.size).min(end);
        add(done, from, None);
        add(from, to, Some(array.element));
        done = to;
    }
    add(done, end, None);
    all
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

    /// A program that tells the address of its table and waits until its input ends.
    const PROGRAM: &str = "#include <stdio.h>\n\
        static struct { long head; struct cell { long count, sum; } cells[64]; } table = {1};\n\
        int main(void) { printf(\"%p\\n\", (void *)&table); fflush(stdout); getchar(); }\n";

    fn compiled(folder: &std::path::Path) -> std::path::PathBuf {
        let (source, program) = (folder.join("table.c"), folder.join("table"));
        std::fs::write(&source, PROGRAM).expect("our own folder");
        let mut compiler = std::process::Command::new("gcc");
        let compiled = compiler
            .arg("-g")
            .arg("-o")
            .arg(&program)
            .arg(&source)
            .status();
        assert!(compiled.expect("the README names gcc").success());
        program
    }

    /// The debug information can be asked only about what is mapped; before, it knew nothing.
    #[test]
    fn elements_are_those_of_an_array_in_what_is_mapped_now() {
        use std::io::BufRead;
        use sunder_access::{Access, CodeAddress, Kind, ProcessId, Provenance, ThreadId, Time};
        let folder = std::env::temp_dir().join(format!("sunder-elements-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("our own folder");
        let mut program = std::process::Command::new(compiled(&folder));
        // It ends with this pipe, also where a step below fails.
        let mut child = program
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .spawn()
            .expect("it runs");
        let mut line = String::new();
        let said = child.stdout.take().expect("piped");
        std::io::BufReader::new(said)
            .read_line(&mut line)
            .expect("it is running");
        let table = u64::from_str_radix(line.trim().trim_start_matches("0x"), 16);
        let table = table.expect("an address");
        let mappings = sunder_observe::proc::mappings(ProcessId(child.id()));
        let mut process =
            Process::recorded(ProcessId(child.id()), sunder_sharing::Config::default());
        process.set_mappings(mappings.expect("it is running"));
        // Two threads count in two cells of one line, which hold more than it begins with.
        let on_a_line = (table + 8).next_multiple_of(LINE);
        for turn in 0..200 {
            process.judge.access(&Access {
                time: Time(turn * 1000),
                thread: ThreadId(1 + turn as u32 % 2),
                instruction: CodeAddress(0),
                address: Address(on_a_line + turn % 2 * 16),
                width: 8,
                kind: Kind::Write,
                provenance: Provenance::Traced,
                weight: 1.0,
            });
        }
        let lines = process.judge.verdicts();
        let mut objects = Objects::default();
        let mut known = |elements| -> Vec<_> {
            let found = objects.on(&mut process, lines.iter(), elements);
            let part = |one: &Object| (one.span.start.0, one.span.len, one.element);
            found.iter().map(part).collect()
        };
        let without = known(false);
        let with = known(true);
        child.wait().expect("it ends");
        std::fs::remove_dir_all(&folder).expect("our own folder");
        assert_eq!(without, [(on_a_line, LINE, None)]);
        assert_eq!(with, [(table, 8, None), (table + 8, 1024, Some(16))]);
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
    fn arrays_in_an_object_are_pieces_of_it_with_elements() {
        let whole = Object {
            span: Span::new(Address(0x10_0000), 0x500),
            element: None,
            first: 0,
            is_block: false,
        };
        let array = |offset, size, element| ArrayPart {
            offset,
            size,
            element,
        };
        let arrays = [array(0x20, 0x400, 16), array(0x420, 0x40, 8)];
        let found = pieces(&whole, &arrays, 0x10_0000);
        let found: Vec<_> = found
            .iter()
            .map(|one| (one.span.start.0 - 0x10_0000, one.span.len, one.element))
            .collect();
        let expected = [
            (0, 0x20, None),
            (0x20, 0x400, Some(16)),
            (0x420, 0x40, Some(8)),
            (0x460, 0xa0, None),
        ];
        assert_eq!(found, expected);
        assert_eq!(
            pieces(&whole, &[], 0x10_0000).len(),
            1,
            "without arrays it is whole"
        );
        // The memory is smaller than its type says.
        let short = pieces(&whole, &[array(0x480, 0x400, 16)], 0x10_0000);
        assert_eq!(short.iter().map(|one| one.span.len).sum::<u64>(), 0x500);
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
