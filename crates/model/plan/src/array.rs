//! Advice for arrays of which each thread uses elements, or a slice, of its own.

use crate::array_type::array_type;
use crate::called::called;
use crate::hoist;
use crate::layout::{Layout, Part};
use crate::place;
use crate::slices::{self, Division};
use crate::truly_shared::{is_lock, names_a_lock};
use crate::words::{counted, quoted};
use std::collections::BTreeSet;
use sunder_findings::{Advice, Fix, Object};

/// Advice for an array of per-thread elements; `None` if the object is none.
pub(crate) fn advise(layout: &Layout) -> Option<Vec<Advice>> {
    if is_bit_vector(&layout.finding.object) {
        return Some(vec![bit_vector(layout)]);
    }
    let owners = layout.element_owners()?;
    let array = Array::of(layout);
    let line = u64::from(layout.line_size);
    let division = Division::of(&owners, array.count);
    let mut all = Vec::new();
    match array.element {
        Some(size) if size % line == 0 => all.push(array.start_on_a_line(size)),
        // Whatever is wider than an element is an object that lies there.
        Some(1) if layout.parts.iter().any(|p| p.word.size > 1) => all.push(array.round_up()),
        Some(size) if division != Division::Single && !is_for_anyone(layout, division) => {
            let threads: BTreeSet<_> = owners.values().collect();
            let start = (!layout.starts_on_a_line()).then(|| array.start().1);
            let parts = (division, threads.len());
            all.push(slices::advise(layout, (&array.name, size), parts, start));
        }
        size => all.push(array.align_elements(size)),
    }
    // Of a slice, no local variable can hold all.
    if division == Division::Single {
        all.extend(hoist::advise(layout));
    }
    Some(all)
}

/// Whether any thread may use any element, whichever it was seen to use: the locks of a table that a hash
/// chooses from protect nothing if each thread has a table of its own, and no thread can keep to a run of
/// them. The same for what threads update atomically here and there.
fn is_for_anyone(layout: &Layout, division: Division) -> bool {
    let object = &layout.finding.object;
    let names = [object.name.as_deref(), object.type_name.as_deref()];
    names.into_iter().flatten().any(names_a_lock)
        || layout.parts.iter().any(|part| is_lock(layout, part))
        || division == Division::Scattered && layout.parts.iter().any(Part::is_updated)
}

/// Whether the object is, or holds the bits of, a `std::vector<bool>`.
fn is_bit_vector(object: &Object) -> bool {
    let names = |text: &str| text.starts_with("std::vector<bool") || text.starts_with("std::_Bvec");
    object.type_name.as_deref().is_some_and(names)
        || object.allocation.iter().any(|f| names(&f.function))
}

/// Bits can't be aligned one by one.
fn bit_vector(layout: &Layout) -> Advice {
    let line = layout.line_size;
    Advice {
        fix: Fix::Separate,
        text: format!(
            "{}{} is a `std::vector<bool>`, which packs its elements into words: whoever writes one \
             writes the word, so threads that write different elements of one vector race. Give each \
             thread a vector of its own and join them at the end, or use a `std::vector<char>` \
             in which the parts of different threads are {line} bytes apart.",
            called(&layout.finding.object),
            layout.origin(),
        ),
        grows_by: None,
    }
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
    /// Whether the object is the array, and not a structure with an array in it.
    is_object: bool,
}

/// The member at `path`, which begins with a dot where its object has no name.
fn member(path: &str, object: &Object) -> String {
    match (path.strip_prefix('.'), &object.type_name) {
        (None, _) => quoted(path),
        (Some(member), Some(of)) => format!("{} of {}", quoted(member), quoted(of)),
        (Some(member), None) => quoted(member),
    }
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
        // The size of a structure says nothing of an array in it.
        let element = match is_object {
            true => layout.element_size(),
            false => layout.element_distance(),
        };
        let counted = type_name.and_then(array_type).and_then(|(_, n)| n);
        let by_size = || Some(object.size? / element?).filter(|_| is_object);
        let name = match (&object.name, of) {
            (_, _) if !is_object => member(inner, object),
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
            is_object,
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
        let object = &layout.finding.object;
        if !self.is_object {
            let members = std::slice::from_ref(&self.name);
            let how = layout.language.before_members(members, layout.line_size);
            return (Fix::Separate, format!("To start it on a line, {how}."));
        }
        let (fix, how) = place::start_on_a_line(layout, object, &layout.at_place());
        match fix {
            Fix::Allocate => (fix, format!("Start it on a line: {how}.")),
            _ => (fix, format!("To start it on a line, {how}.")),
        }
    }

    /// For an array of bytes from which memory for other objects is taken.
    fn round_up(&self) -> Advice {
        let line = self.layout.line_size;
        Advice {
            fix: Fix::Allocate,
            text: format!(
                "Objects of different threads lie side by side in {}{}. Let what hands out its bytes \
                 begin each thread's part at a multiple of {line}, and round its size up to one.",
                self.name,
                self.layout.origin(),
            ),
            grows_by: None,
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
            Some(of) if of.contains("{…}") => language.align_unnamed(&self.name, line),
            Some(of) => language.type_on_own_lines(of, line),
            None => language.wrap_element(line),
        };
        let grows_by = element.zip(self.count).map(|(size, count)| {
            count.saturating_mul(layout.whole_lines(size).saturating_sub(size))
        });
        let total = element
            .zip(self.count)
            .map(|(size, count)| count.saturating_mul(layout.whole_lines(size)));
        Advice {
            fix: Fix::Align,
            text: format!("{why} {how}.{}", place::allocation_too(layout, total)),
            grows_by,
        }
    }
}
