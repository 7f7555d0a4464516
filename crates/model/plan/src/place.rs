//! How to move an object as a whole to a line's start. Called by the advice for arrays, for fields and
//! for neighbours.

use crate::called::{called, is_bare_stack};
use crate::layout::Layout;
use crate::words::{quoted, short_list};
use std::collections::BTreeSet;
use sunder_findings::{Fix, Object, ObjectKind, file_name};

/// What to do so that the object starts a line, in the imperative, with its declaration or
/// allocation `at`.
pub(crate) fn start_on_a_line(layout: &Layout, object: &Object, at: &str) -> (Fix, String) {
    let (language, line) = (layout.language, layout.line_size);
    match object.kind {
        ObjectKind::Heap => {
            let size = object.size.map(|s| layout.whole_lines(s));
            let how = language.allocate(line, size);
            (
                Fix::Allocate,
                format!("allocate {}{at} with {how}", called(object)),
            )
        }
        _ if is_bare_stack(object) => (Fix::Separate, off_the_stack(layout, object)),
        _ => (
            Fix::Align,
            format!("{}{at}", language.align_variable(&called(object), line)),
        ),
    }
}

/// What to do about bytes of a stack of which no variable is known.
pub(crate) fn off_the_stack(layout: &Layout, object: &Object) -> String {
    let mut seen = BTreeSet::new();
    let code: Vec<String> = layout
        .finding
        .sites
        .iter()
        .filter(|s| seen.insert((&s.function, s.line)))
        .map(|s| match (&s.file, s.line) {
            (Some(file), Some(line)) => format!("`{}` ({}:{line})", s.function, file_name(file)),
            _ => quoted(&s.function),
        })
        .collect();
    let used = match code.is_empty() {
        true => String::new(),
        false => format!(" (used in {})", short_list(&code, 3)),
    };
    format!(
        "move what the threads share out of the frame on {}{used}, or align the variable there to \
         {} bytes",
        called(object),
        layout.line_size
    )
}

/// What to add about the allocation of a block of `total` bytes whose type is aligned: the allocator
/// may not know the type. Empty where it does, or where the object is no heap block.
pub(crate) fn allocation_too(layout: &Layout, total: Option<u64>) -> String {
    let object = &layout.finding.object;
    let calls = |name: &str| {
        object
            .allocation
            .iter()
            .any(|f| f.function.starts_with(name))
    };
    let by_malloc = ["malloc", "calloc", "realloc", "reallocarray"]
        .iter()
        .any(|c| object.allocation.iter().any(|f| f.function == *c));
    if object.kind != ObjectKind::Heap || calls("operator new") || calls("__rust") || !by_malloc {
        return String::new();
    }
    format!(
        " Then allocate it with {} instead of `malloc`, which aligns to 16 bytes only.",
        layout.language.allocate(layout.line_size, total)
    )
}
