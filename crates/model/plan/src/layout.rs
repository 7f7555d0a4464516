//! A finding laid out for judging: its words by position in the object, each
//! with the thread that owns it, and array elements told from fields.

use crate::language::Language;
use std::collections::{BTreeMap, BTreeSet};
use sunder_findings::{Finding, Sharing, Word, file_name};

/// Of a word's accesses, the share that makes a thread its owner. Below 1 since
/// the main thread usually initialises what workers then use.
const OWNER_SHARE: f64 = 0.9;
/// Of a word's accesses, the share of writes up to which it counts as only read,
/// for the same reason.
const RARE_WRITES: f64 = 0.02;

/// A finding on a machine with lines of a given size.
pub(crate) struct Layout<'a> {
    pub(crate) finding: &'a Finding,
    pub(crate) line_size: u32,
    pub(crate) language: Language,
    /// By ascending position.
    pub(crate) parts: Vec<Part<'a>>,
    /// The object's start may not be what it is in the next run.
    pub(crate) start_is_chance: bool,
}

/// A word of the finding.
pub(crate) struct Part<'a> {
    /// From the object's start; from the first line's start where the object is
    /// unknown.
    pub(crate) position: i64,
    pub(crate) word: &'a Word,
    pub(crate) path: Path<'a>,
    /// Whether no two threads used it at once, one of which wrote: all of the finding is falsely
    /// shared.
    pub(crate) in_turn: bool,
}

/// A field's path, split at its first element number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Path<'a> {
    /// Before the element number: the array; empty if it is the object itself.
    pub(crate) array: &'a str,
    pub(crate) element: Option<u64>,
    /// After it: the field in the element. Without a number, all.
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
                    // What libstdc++ calls the elements of a std::array says nothing.
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
        let mut parts: Vec<Part> = finding
            .lines
            .iter()
            .enumerate()
            .flat_map(|(i, line)| {
                let base = line
                    .object_offset
                    .unwrap_or(i as i64 * i64::from(line_size));
                line.words.iter().map(move |word| Part {
                    position: base.saturating_add(i64::from(word.offset)),
                    word,
                    path: Path::parse(word.field.as_deref().unwrap_or_default()),
                    in_turn,
                })
            })
            .collect();
        parts.sort_by_key(|p| p.position);
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

    /// Whether the object starts where a line does, and will do so again.
    pub(crate) fn starts_on_a_line(&self) -> bool {
        !self.start_is_chance
            && self
                .finding
                .object
                .start()
                .is_some_and(|a| a % u64::from(self.line_size) == 0)
    }

    /// Bytes from one element to the next: as the naming tells, else from type
    /// and size, else from the distance of one field in two elements.
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

    fn element_distance(&self) -> Option<u64> {
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

    /// ` at file:line`, where the object is declared or allocated; else empty.
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

    /// Field names of the parts that `pick` takes, in the order of position,
    /// without repetition.
    pub(crate) fn fields(&self, pick: impl Fn(&Part) -> bool) -> Vec<&'a str> {
        let mut seen = BTreeSet::new();
        self.parts
            .iter()
            .filter(|p| !p.path.field.is_empty() && pick(p))
            .map(|p| p.path.field)
            .filter(|f| seen.insert(*f))
            .collect()
    }

    /// Owner of each array element, if the threads keep to elements of their
    /// own: no element has two owners, and at least two threads have one.
    pub(crate) fn element_owners(&self) -> Option<BTreeMap<u64, u32>> {
        let mut owners: BTreeMap<u64, u32> = BTreeMap::new();
        let array = self
            .parts
            .iter()
            .find(|p| p.path.element.is_some())?
            .path
            .array;
        for part in &self.parts {
            if part.path.element.is_none() || part.path.array != array {
                // A scalar beside the array: not an array's business.
                return None;
            }
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
    /// Whose it is: the thread that makes nearly all accesses, or of several that write it one
    /// after the other (threads that a program makes anew for each step) the busiest.
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

    /// Whether it is written more than once in a while.
    pub(crate) fn written(&self) -> bool {
        self.word.stores() as f64 > self.word.accesses() as f64 * RARE_WRITES
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
        let last = self
            .position
            .saturating_add(i64::from(self.word.size.max(1)) - 1);
        let of = if layout.finding.object.kind == sunder_findings::ObjectKind::Unknown {
            " of the line"
        } else {
            ""
        };
        format!("bytes {}-{last}{of}", self.position)
    }

    /// The field as it stands in a declaration. Padding, bytes that are of one field or another,
    /// and those beyond the type that is known (`+48`) stand in none.
    pub(crate) fn declared(&self) -> Option<&str> {
        let field = self.word.field.as_deref()?;
        let declared = !field.starts_with('+') && !field.contains(['<', '{']);
        declared.then_some(field)
    }

    /// The field in backquotes, or its bytes. A block that is one scalar has a
    /// field without a name.
    pub(crate) fn called(&self, layout: &Layout) -> String {
        match self.word.field.as_deref() {
            Some(field) if !field.is_empty() && !field.starts_with('+') => format!("`{field}`"),
            _ => self.bytes(layout),
        }
    }
}

/// Element type and count of an array type in C, C++ or Rust notation.
pub(crate) fn array_type(name: &str) -> Option<(&str, Option<u64>)> {
    let number = |text: &str| {
        text.trim()
            .trim_end_matches(['u', 'l', 'U', 'L'])
            .parse()
            .ok()
    };
    if let Some(inner) = name.strip_prefix('[') {
        let (of, count) = inner.strip_suffix(']')?.rsplit_once(';')?;
        return Some((of.trim(), number(count)));
    }
    for prefix in ["std::array<", "std::__1::array<"] {
        if let Some(inner) = name.strip_prefix(prefix) {
            let (of, count) = inner.strip_suffix('>')?.rsplit_once(',')?;
            return Some((of.trim(), number(count)));
        }
    }
    for prefix in ["std::vector<", "Vec<", "alloc::vec::Vec<", "Box<["] {
        if let Some(inner) = name.strip_prefix(prefix) {
            let inner = inner
                .trim_end_matches("]>")
                .strip_suffix('>')
                .unwrap_or(inner);
            let end = top_level_comma(inner).unwrap_or(inner.len());
            return Some((inner[..end].trim(), None));
        }
    }
    let open = name.find('[')?;
    let close = open + name[open..].find(']')?;
    // For `T[4][8]` the elements are rows: only a one-dimensional array has a
    // type that one can name here.
    (close + 1 == name.len()).then(|| (name[..open].trim(), number(&name[open + 1..close])))
}

fn top_level_comma(text: &str) -> Option<usize> {
    let mut depth = 0;
    text.char_indices().find_map(|(i, c)| {
        match c {
            '<' | '(' | '[' => depth += 1,
            '>' | ')' | ']' => depth -= 1,
            _ => {}
        }
        (c == ',' && depth == 0).then_some(i)
    })
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
    fn array_types_of_three_languages() {
        assert_eq!(array_type("counter[8]"), Some(("counter", Some(8))));
        assert_eq!(array_type("struct a [2]"), Some(("struct a", Some(2))));
        assert_eq!(array_type("[Slot; 2]"), Some(("Slot", Some(2))));
        assert_eq!(
            array_type("std::array<std::atomic<long>, 2ul>"),
            Some(("std::atomic<long>", Some(2)))
        );
        assert_eq!(
            array_type("std::vector<std::pair<int, int>, std::allocator<int>>"),
            Some(("std::pair<int, int>", None))
        );
        assert_eq!(array_type("Vec<AtomicU64>"), Some(("AtomicU64", None)));
        assert_eq!(array_type("int[4][8]"), None);
        assert_eq!(array_type("queue"), None);
    }
}
