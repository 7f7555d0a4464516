//! A finding prepared for advice: its words by position in the object, each with the thread
//! that owns it, with elements of arrays distinguished from fields.

use crate::array_type::array_type;
use crate::called::called;
use crate::language::Language;
use std::collections::{BTreeMap, BTreeSet};
use sunder_findings::{Finding, Sharing, Word, file_name, normalized_field};

/// The share of a word's accesses that makes a thread its owner. Below 1 because the main
/// thread usually initialises what workers use later.
const OWNER_SHARE: f64 = 0.9;

/// From this share of false interleavings on, what several threads use they pass on to each other now
/// and then, and do not use at the same time.
pub(crate) const PASSED_ON: f64 = 0.95;
/// The share of writes among a word's accesses up to which the word counts as only read, for
/// the same reason.
const RARE_WRITES: f64 = 0.02;

/// A line with fewer interleavings than this share of those of the busiest line has no part in the advice:
/// of a queue, the slots on which its sides meet now and then, beside the positions that all want.
const NEGLIGIBLE: f64 = 0.01;

/// One access in so many is not worth a word.
const FEW: u64 = 50;

/// A finding on a machine with lines of a given size.
pub(crate) struct Layout<'a> {
    pub(crate) finding: &'a Finding,
    pub(crate) line_size: u32,
    pub(crate) language: Language,
    /// By ascending position.
    pub(crate) parts: Vec<Part<'a>>,
    /// Whether the object may start at another position of its line in the next run.
    pub(crate) start_is_chance: bool,
}

/// A word of the finding.
pub(crate) struct Part<'a> {
    /// Offset from the object's start, or from the first line's start if the object is not
    /// known.
    pub(crate) position: i64,
    /// The index of its line in the finding.
    pub(crate) line: usize,
    pub(crate) word: &'a Word,
    pub(crate) path: Path<'a>,
    /// Whether no two threads used it at the same time with one of them writing: all sharing in
    /// the finding is false.
    pub(crate) in_turn: bool,
}

/// A field's path, split at its first element number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path<'a> {
    /// The array's path before the element number; empty if the object itself is the array.
    pub(crate) array: &'a str,
    pub(crate) element: Option<u64>,
    /// The field in the element, after the element number. Without a number, the whole path.
    pub(crate) field: &'a str,
}

impl<'a> Path<'a> {
    pub(crate) fn parse(path: &'a str) -> Self {
        let mut from = 0;
        while let Some(open) = path[from..].find('[').map(|i| from + i) {
            let digits = &path[open + 1..];
            let len = digits
                .find(|c: char| !c.is_ascii_digit())
                .unwrap_or(digits.len());
            if let (true, Ok(element)) = (digits[len..].starts_with(']'), digits[..len].parse()) {
                return Self {
                    // libstdc++'s name for the elements of a `std::array` says nothing to the user.
                    array: path[..open]
                        .trim_end_matches("._M_elems")
                        .trim_end_matches(['.', '>', '-']),
                    element: Some(element),
                    field: digits[len + 1..].trim_start_matches('.'),
                };
            }
            from = open + 1;
        }
        Self {
            array: "",
            element: None,
            field: path,
        }
    }
}

impl<'a> Layout<'a> {
    pub(crate) fn of(finding: &'a Finding, line_size: u32) -> Self {
        let in_turn = finding.sharing == Sharing::False;
        let rates = finding
            .lines
            .iter()
            .map(|line| line.interleavings_per_second);
        let highest = rates.fold(0.0, f64::max);
        let mut parts: Vec<Part> = finding
            .lines
            .iter()
            .enumerate()
            .filter(|(_, line)| line.interleavings_per_second >= highest * NEGLIGIBLE)
            .flat_map(|(i, line)| {
                let base = line
                    .object_offset
                    .unwrap_or(i as i64 * i64::from(line_size));
                line.words.iter().map(move |word| Part {
                    position: base.saturating_add(i64::from(word.offset)),
                    line: i,
                    word,
                    path: Path::parse(word.field.as_deref().unwrap_or_default()),
                    in_turn,
                })
            })
            .collect();
        parts.sort_by_key(|p| p.position);
        // Bytes beside the object that hardly anybody touched are another object's, which naming
        // did not think worth a name here.
        let all: u64 = parts
            .iter()
            .map(|p| p.word.accesses())
            .fold(0, u64::saturating_add);
        let inside = |p: &Part| match finding.object.size {
            Some(size) if finding.neighbour.is_none() => {
                u64::try_from(p.position).is_ok_and(|at| at < size)
            }
            _ => true,
        };
        parts.retain(|p| inside(p) || p.word.accesses().saturating_mul(FEW) >= all);
        Self {
            finding,
            line_size,
            language: Language::of(finding),
            parts,
            start_is_chance: false,
        }
    }

    /// `size` rounded up to whole lines.
    pub(crate) fn whole_lines(&self, size: u64) -> u64 {
        size.div_ceil(u64::from(self.line_size))
            .saturating_mul(u64::from(self.line_size))
    }

    /// Whether the object starts at a line's start, and will do so in every run.
    pub(crate) fn starts_on_a_line(&self) -> bool {
        !self.start_is_chance
            && self
                .finding
                .object
                .address
                .0
                .is_multiple_of(u64::from(self.line_size))
    }

    /// Bytes from one element to the next: from naming, else from type and size, else from the
    /// distance of one field in two elements.
    pub(crate) fn element_size(&self) -> Option<u64> {
        let object = &self.finding.object;
        let of_type = || {
            let count = array_type(object.type_name.as_deref()?)?.1?;
            let size = object.size?;
            (count > 0 && size % count == 0).then(|| size / count)
        };
        object
            .element_size
            .or_else(of_type)
            .or_else(|| self.element_distance())
            .filter(|&s| s > 0)
    }

    pub(crate) fn element_distance(&self) -> Option<u64> {
        let numbered: Vec<_> = self
            .parts
            .iter()
            .filter_map(|p| Some((p.path.element?, p.path, p.position)))
            .collect();
        numbered.iter().find_map(|&(i, path, at)| {
            let (j, _, other) = numbered
                .iter()
                .find(|&&(j, q, _)| j > i && (q.array, q.field) == (path.array, path.field))?;
            let distance = u64::try_from(other.checked_sub(at)?).ok()?;
            let elements = j - i;
            (distance % elements == 0).then(|| distance / elements)
        })
    }

    /// `thread 4701 (worker)`.
    pub(crate) fn thread(&self, id: u32) -> String {
        let named = self
            .parts
            .iter()
            .flat_map(|p| &p.word.threads)
            .find(|t| t.id == id)
            .and_then(|t| t.name.as_deref());
        match named {
            Some(name) => format!("thread {id} ({name})"),
            None => format!("thread {id}"),
        }
    }

    /// `function (file:line)` of the code with most accesses.
    pub(crate) fn busiest_site(&self) -> Option<String> {
        let site = self.finding.sites.first()?;
        let at = match (&site.file, site.line) {
            (Some(file), Some(line)) => format!(" ({}:{line})", file_name(file)),
            (Some(file), None) => format!(" ({})", file_name(file)),
            _ => String::new(),
        };
        Some(format!("`{}`{at}", site.function))
    }

    /// ` at file:line` of the object's declaration or allocation; else empty.
    pub(crate) fn at_place(&self) -> String {
        self.place().map(|p| format!(" at {p}")).unwrap_or_default()
    }

    /// ` (allocated at file:line)` or ` (declared at file:line)`; else empty.
    pub(crate) fn origin(&self) -> String {
        let verb = match self.finding.object.declared {
            Some(_) => "declared",
            None => "allocated",
        };
        self.place()
            .map(|p| format!(" ({verb} at {p})"))
            .unwrap_or_default()
    }

    fn place(&self) -> Option<String> {
        let place = self.finding.object.place()?;
        let file = file_name(&place.file);
        Some(match place.line {
            Some(line) => format!("{file}:{line}"),
            None => file.to_owned(),
        })
    }

    /// The field names of the parts that `pick` selects, by position, without repetition.
    pub(crate) fn fields(&self, pick: impl Fn(&Part) -> bool) -> Vec<&'a str> {
        let mut seen = BTreeSet::new();
        self.parts
            .iter()
            .filter(|p| !p.path.field.is_empty() && pick(p))
            .map(|p| p.path.field)
            .filter(|f| seen.insert(*f))
            .collect()
    }

    /// The owner of each array element. `None` unless no element has two owners and at least
    /// two threads own one. Threads that carry those of a runtime (goroutines, tasks) pass elements on
    /// with them, so that each may have used all elements: then a number of its own stands for each one's.
    pub(crate) fn element_owners(&self) -> Option<BTreeMap<u64, u32>> {
        let array = self
            .parts
            .iter()
            .find(|p| p.path.element.is_some())?
            .path
            .array;
        // A scalar beside the array is no advice for an array.
        let is_of_array = |p: &Part| p.path.element.is_some() && p.path.array == array;
        if !self.parts.iter().all(is_of_array) {
            return None;
        }
        let passed_on = self.finding.false_share >= PASSED_ON;
        if passed_on && self.parts.iter().any(Part::truly_shared) {
            let written = self.parts.iter().filter(|p| p.written());
            let elements: BTreeSet<u64> = written.filter_map(|p| p.path.element).collect();
            return (elements.len() >= 2).then(|| elements.into_iter().zip(1..).collect());
        }
        let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
        for part in &self.parts {
            let (Some(element), Some(owner)) = (part.path.element, part.owner()) else {
                continue;
            };
            if *owners.entry(element).or_insert(owner) != owner {
                return None;
            }
        }
        let distinct: BTreeSet<_> = owners.values().collect();
        (owners.len() >= 2 && distinct.len() >= 2).then_some(owners)
    }
}

impl Part<'_> {
    /// The thread to which the word belongs: the one that makes nearly all accesses. If several
    /// threads write it one after another (threads that a program creates anew for each step),
    /// the busiest.
    pub(crate) fn owner(&self) -> Option<u32> {
        self.sole_owner().or_else(|| {
            let threads = self.word.threads.iter().filter(|t| t.accesses() > 0);
            let busiest = threads.max_by_key(|t| (t.accesses(), std::cmp::Reverse(t.id)));
            busiest
                .filter(|_| self.in_turn && self.written())
                .map(|t| t.id)
        })
    }

    /// The thread that makes nearly all accesses, if one does.
    pub(crate) fn sole_owner(&self) -> Option<u32> {
        let total = self.word.accesses() as f64;
        self.word
            .threads
            .iter()
            .find(|t| {
                let own = t.accesses() as f64;
                own > 0.0 && own >= total * OWNER_SHARE
            })
            .map(|t| t.id)
    }

    /// Whether more than rare accesses to it are writes.
    pub(crate) fn written(&self) -> bool {
        self.word.stores() as f64 > self.word.accesses() as f64 * RARE_WRITES
    }

    /// Whether any thread updates it atomically.
    pub(crate) fn is_updated(&self) -> bool {
        self.word.threads.iter().any(|thread| thread.updates > 0)
    }

    /// Whether several threads use it and at least one writes.
    pub(crate) fn truly_shared(&self) -> bool {
        self.owner().is_none() && self.written()
    }

    pub(crate) fn atomic(&self) -> bool {
        self.word.threads.iter().any(|t| t.atomics > 0)
    }

    /// `bytes 8-15`, of the object or line.
    pub(crate) fn bytes(&self, layout: &Layout) -> String {
        self.bytes_to(self, layout)
    }

    /// The bytes from this part to the end of another one.
    pub(crate) fn bytes_to(&self, end: &Self, layout: &Layout) -> String {
        let last = end
            .position
            .saturating_add(i64::from(end.word.size.max(1)) - 1);
        let of = if layout.finding.object.kind == sunder_findings::ObjectKind::Unknown {
            " of the line"
        } else {
            ""
        };
        match last == self.position {
            true => format!("byte {last}{of}"),
            false => format!("bytes {}-{last}{of}", self.position),
        }
    }

    /// The field as it is in the declaration. `None` for padding, for bytes that may be of one
    /// field or another, and for bytes beyond the known type (`+48`).
    pub(crate) fn declared(&self) -> Option<&str> {
        let field = self.word.field.as_deref()?;
        let declared = !field.starts_with('+') && !field.contains(['<', '{']);
        declared.then_some(field)
    }

    /// The member that holds it, as a person would look for it in the declaration: `` `hits` ``, or
    /// ``field 0 of `Pair` `` for members without names. What a library hides in its types belongs
    /// to the member of that type. `None` as for [`Part::declared`].
    pub(crate) fn member(&self, layout: &Layout) -> Option<String> {
        let object = &layout.finding.object;
        let path = member_path(self.declared()?);
        if path.is_empty() {
            return Some(called(object));
        }
        let (holder, leaf) = path.rsplit_once('.').unwrap_or(("", path));
        // A generic type's inner member has one name wherever the type is used.
        let own = normalized_field(path);
        let paths = layout.parts.iter().filter_map(Part::declared);
        let paths = paths.map(|p| normalized_field(member_path(p)));
        let mut alike = paths.filter(|p| *p != own && p.rsplit('.').next() == Some(leaf));
        if let (Some(other), Some(within)) = (alike.next(), own.split_once('.').map(|o| o.1)) {
            let first = |path: &str| path.split('.').next().map(str::to_owned);
            let others = other.split_once('.').and_then(|o| first(o.1));
            return match first(within) {
                Some(outer) if Some(&outer) != others.as_ref() => Some(format!("`{outer}`")),
                _ => Some(format!("`{within}`")),
            };
        }
        if !leaf.bytes().all(|b| b.is_ascii_digit()) {
            return Some(format!("`{leaf}`"));
        }
        // The holder is the variable itself, or an element of it.
        let of = match object.type_name.as_deref() {
            Some(of) if !holder.contains('.') => array_type(of).map_or(of, |(of, _)| of),
            _ => holder,
        };
        Some(format!("field {leaf} of `{of}`"))
    }

    /// Whether its member is known: without the members of a type, a path is the variable's name alone.
    pub(crate) fn is_in_member(&self, layout: &Layout) -> bool {
        let path = member_path(self.declared().unwrap_or_default());
        let variable = layout.finding.object.name.as_deref().unwrap_or_default();
        let is_variable = variable
            .strip_suffix(path)
            .is_some_and(|outer| outer.is_empty() || outer.ends_with("::"));
        !path.is_empty() && !is_variable
    }

    /// The field in backquotes, or its bytes. The field of a block that is one scalar has no
    /// name. The member of an object without a name is called as in its declaration, and an element
    /// as in the code: `lock` and `table[3]`, not `.lock` and `[3]`.
    pub(crate) fn called(&self, layout: &Layout) -> String {
        match self.word.field.as_deref() {
            // What a library hides in the object itself.
            Some(inside) if inside.starts_with('(') => format!(
                "the {} of {}",
                inside.trim_matches(['(', ')']),
                called(&layout.finding.object)
            ),
            Some(field) if field.starts_with('[') => {
                let array = layout.finding.object.name.as_deref().unwrap_or_default();
                format!("`{array}{field}`")
            }
            Some(field) if !field.is_empty() && !field.starts_with('+') => {
                format!("`{}`", field.trim_start_matches('.'))
            }
            _ => self.bytes(layout),
        }
    }
}

/// The path to a member without what a library hides in it and without the indices behind it.
fn member_path(field: &str) -> &str {
    let mut path = field.split(" (").next().unwrap_or(field);
    while let Some(open) = path.rfind('[').filter(|_| path.ends_with(']')) {
        path = &path[..open];
    }
    if path.starts_with('(') { "" } else { path }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_split_at_the_first_element_number() {
        let p = |array, element, field| Path {
            array,
            element,
            field,
        };
        assert_eq!(
            Path::parse("counters[3].hits"),
            p("counters", Some(3), "hits")
        );
        assert_eq!(Path::parse("[0].SX"), p("", Some(0), "SX"));
        assert_eq!(Path::parse("a[1][2]"), p("a", Some(1), "[2]"));
        assert_eq!(Path::parse("config.limit"), p("", None, "config.limit"));
        assert_eq!(Path::parse("m[key].v[7]"), p("m[key].v", Some(7), ""));
        assert_eq!(
            Path::parse("[99999999999999999999]"),
            p("", None, "[99999999999999999999]")
        );
    }

    #[test]
    fn a_member_is_what_a_declaration_has() {
        for (field, path) in [
            ("ring.head", "ring.head"),
            ("s.hist[3]", "s.hist"),
            ("s.total (poison flag)", "s.total"),
            ("LOCKS[1] (poison flag)", "LOCKS"),
            ("(poison flag)", ""),
            ("[3]", ""),
        ] {
            assert_eq!(member_path(field), path, "{field}");
        }
    }
}
