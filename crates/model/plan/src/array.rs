//! Advice for arrays of which each thread uses elements, or a slice, of its own.

use crate::language::is_foreign_type;
use crate::layout::{Layout, array_type};
use crate::words::{counted, quoted};
use std::collections::{BTreeMap, BTreeSet};
use sunder_findings::{AccessKind, Advice, Fix, ObjectKind, file_name};

/// Advice for an array of per-thread elements; `None` if the object is none.
pub(crate) fn advise(layout: &Layout) -> Option<Vec<Advice>> {
    let owners = layout.element_owners()?;
    let array = Array::of(layout);
    let line = u64::from(layout.line_size);
    let mut all = Vec::new();
    match array.element {
        Some(size) if size % line == 0 => all.push(array.start_on_a_line(size)),
        Some(size) if size < line && array.in_slices(&owners) => {
            all.push(array.round_slices(size, &owners));
        }
        size => all.push(array.align_elements(size)),
    }
    all.extend(hoist(layout));
    Some(all)
}

struct Array<'a> {
    layout: &'a Layout<'a>,
    /// The array's name as the user knows it.
    name: String,
    /// The elements' type, if it is known.
    of: Option<&'a str>,
    /// Bytes of an element, if known.
    element: Option<u64>,
    /// The number of elements, if known.
    count: Option<u64>,
}

impl<'a> Array<'a> {
    fn of(layout: &'a Layout<'a>) -> Self {
        let object = &layout.finding.object;
        let inner = layout
            .parts
            .iter()
            .find(|p| p.path.element.is_some())
            .map_or("", |p| p.path.array);
        // The path of a variable may lack its namespace.
        let is_object = inner.is_empty()
            || object.name.as_deref().is_some_and(|name| {
                name == inner || name.strip_suffix(inner).is_some_and(|n| n.ends_with("::"))
            });
        let type_name = object.type_name.as_deref().filter(|_| is_object);
        let of = type_name.map(|t| array_type(t).map_or(t, |(of, _)| of));
        let element = layout.element_size();
        let counted = type_name.and_then(array_type).and_then(|(_, n)| n);
        let by_size = || Some(object.size? / element?).filter(|_| is_object);
        let name = match (&object.name, of) {
            (_, _) if !is_object => quoted(inner),
            (Some(name), _) => quoted(name),
            (None, Some(of)) => format!("the array of {}", quoted(of)),
            (None, None) => "the array".to_owned(),
        };
        Self {
            layout,
            name,
            of,
            element,
            count: counted.or_else(by_size),
        }
    }

    /// For elements that fill whole lines in an array that starts inside a line, as in
    /// Phoenix's linear_regression (SHERIFF section 6.1).
    fn start_on_a_line(&self, element: u64) -> Advice {
        let line = self.layout.line_size;
        let offset = self.layout.finding.object.address.0 % u64::from(line);
        let start = if offset == 0 {
            "nothing makes the array start where a line does".to_owned()
        } else {
            format!(
                "the array starts {offset} bytes behind a line's start, so each line holds parts \
                 of two elements"
            )
        };
        let fits = format!(
            "The elements of {} have {element} bytes, whole lines, but {start}.",
            self.name
        );
        let (fix, how) = self.start();
        Advice {
            fix,
            text: format!("{fits} {how}"),
            // The bytes that the alignment skips before the block; malloc's own alignment is 16.
            grows_by: Some(u64::from(line).saturating_sub(16)),
        }
    }

    /// How to make the array begin at a line's start.
    fn start(&self) -> (Fix, String) {
        let layout = self.layout;
        let (language, line) = (layout.language, layout.line_size);
        match layout.finding.object.kind {
            ObjectKind::Heap => (
                Fix::Allocate,
                format!(
                    "Allocate it{} with {}.",
                    layout.at_place(),
                    language.allocate(
                        line,
                        layout.finding.object.size.map(|s| layout.whole_lines(s))
                    )
                ),
            ),
            _ => {
                let name = layout.finding.object.short_name();
                (
                    Fix::Align,
                    format!(
                        "To start it on a line, {}{}.",
                        language.align_variable(name, line),
                        layout.at_place()
                    ),
                )
            }
        }
    }

    fn align_elements(&self, element: Option<u64>) -> Advice {
        let layout = self.layout;
        let (language, line) = (layout.language, layout.line_size);
        let why = match element {
            Some(size) => format!(
                "Give each element of {}{} lines of its own ({} now, used by one thread{}):",
                self.name,
                layout.origin(),
                counted(size as usize, "byte"),
                if layout.parts.iter().any(|p| p.sole_owner().is_none()) {
                    " at a time"
                } else {
                    ""
                }
            ),
            None => format!(
                "Give each thread's element of {}{} lines of its own:",
                self.name,
                layout.origin()
            ),
        };
        let how = match self.of {
            Some(of) if is_foreign_type(of) => language.wrap_type(of, line),
            Some(of) => language.align_type(of, line),
            None => format!("align the element's type to {line} bytes"),
        };
        let grows_by = element.zip(self.count).map(|(size, count)| {
            count.saturating_mul(layout.whole_lines(size).saturating_sub(size))
        });
        let total = element
            .zip(self.count)
            .map(|(size, count)| count.saturating_mul(layout.whole_lines(size)));
        Advice {
            fix: Fix::Align,
            text: format!("{why} {how}.{}", self.allocation_too(total)),
            grows_by,
        }
    }

    /// Advice for the allocation of an aligned type, whose alignment the allocator may not
    /// know.
    fn allocation_too(&self, total: Option<u64>) -> String {
        let object = &self.layout.finding.object;
        let calls = |name: &str| {
            object
                .allocation
                .iter()
                .any(|f| f.function.starts_with(name))
        };
        let by_malloc = ["malloc", "calloc", "realloc", "reallocarray"]
            .iter()
            .any(|c| object.allocation.iter().any(|f| f.function == *c));
        if object.kind != ObjectKind::Heap || calls("operator new") || calls("__rust") || !by_malloc
        {
            return String::new();
        }
        format!(
            " Then allocate it with {} instead of `malloc`, which aligns to 16 bytes only.",
            self.layout.language.allocate(self.layout.line_size, total)
        )
    }

    /// Whether threads own runs of elements rather than one each.
    fn in_slices(&self, owners: &BTreeMap<u64, u32>) -> bool {
        let threads: BTreeSet<_> = owners.values().collect();
        if owners.len() <= threads.len() {
            return false;
        }
        // In the order of elements, no thread has two separate runs.
        let mut order: Vec<u32> = owners.values().copied().collect();
        order.dedup();
        order.len() == threads.len()
    }

    fn round_slices(&self, element: u64, owners: &BTreeMap<u64, u32>) -> Advice {
        let line = u64::from(self.layout.line_size);
        let threads: BTreeSet<_> = owners.values().collect();
        let how = if line % element == 0 {
            format!(
                "round each slice up to a multiple of {} elements",
                line / element
            )
        } else {
            format!("round each slice up to whole lines of {line} bytes")
        };
        let start = if self.layout.starts_on_a_line() {
            String::new()
        } else {
            format!(" {}", self.start().1)
        };
        Advice {
            fix: Fix::Separate,
            text: format!(
                "Each of {} works on a slice of {}, and slices of two threads meet inside a \
                 line: {how} ({element} bytes each), so that every slice starts a line.{start}",
                counted(threads.len(), "thread"),
                self.name,
            ),
            grows_by: Some((line - element).saturating_mul(threads.len() as u64)),
        }
    }
}

/// Advice for sums that only one thread uses until the end: as a local variable they cost no
/// sharing at all.
fn hoist(layout: &Layout) -> Option<Advice> {
    let written: Vec<_> = layout.parts.iter().filter(|p| p.written()).collect();
    let private = written
        .iter()
        .all(|p| p.sole_owner().is_some() && !p.atomic());
    let site = layout
        .finding
        .sites
        .iter()
        .find(|s| matches!(s.kind, AccessKind::Update | AccessKind::Write))?;
    if !private || written.is_empty() || site.threads.len() < 2 {
        return None;
    }
    let fields = layout.fields(|p| p.written());
    let what = if fields.is_empty() {
        "the element".to_owned()
    } else {
        let quoted: Vec<String> = fields.iter().map(|f| quoted(f)).collect();
        crate::words::short_list(&quoted, 5)
    };
    let at = match (&site.file, site.line) {
        (Some(file), Some(line)) => format!(" ({}:{line})", file_name(file)),
        _ => String::new(),
    };
    Some(Advice {
        fix: Fix::Hoist,
        text: format!(
            "Or keep {what} in local variables inside `{}`{at} and store them once after the \
             loop: no other thread uses them before that.",
            site.function
        ),
        grows_by: Some(0),
    })
}
