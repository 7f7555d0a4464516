//! How to move an object as a whole to a line's start. Called by the advice for arrays, for fields and
//! for neighbours.

use crate::called::called;
use crate::foreign::is_c_library;
use crate::language::Language;
use crate::layout::Layout;
use crate::own_lines;
use crate::words::{quoted, short_list};
use std::collections::BTreeSet;
use sunder_findings::{Fix, Object, ObjectKind, Site, file_name};

/// What to do so that the object starts a line, in the imperative, with its declaration or
/// allocation `at`.
pub(crate) fn start_on_a_line(layout: &Layout, object: &Object, at: &str) -> (Fix, String) {
    let (language, line) = (layout.language, layout.line_size);
    match object.kind {
        ObjectKind::Heap => {
            let size = object.size.map(|s| layout.whole_lines(s));
            let how = own_lines::how(language, object, line, size);
            let others = match may_be_of_any_size(language, object) {
                true => " (and other sizes that are allocated there rounded up alike)",
                false => "",
            };
            (
                Fix::Allocate,
                format!("allocate {}{at} {how}{others}", called(object)),
            )
        }
        _ if object.is_bare_stack() => (Fix::Separate, off_the_stack(layout, object)),
        // What no declaration has.
        ObjectKind::Mapping | ObjectKind::Unknown => {
            let what = match object.type_name {
                Some(_) => called(object),
                None => format!("what lies in {}", called(object)),
            };
            (
                Fix::Align,
                format!("let {what}{at} begin at a multiple of {line} bytes"),
            )
        }
        _ => (
            Fix::Align,
            format!("{}{at}", language.align_variable(&called(object), line)),
        ),
    }
}

/// Whether the call that allocated the block may be told its size, as in a program's own allocator: the
/// block has no type, or is an array of numbers.
fn may_be_of_any_size(language: Language, object: &Object) -> bool {
    /// Bytes of the largest numbers.
    const NUMBER: u64 = 16;
    let by_size = matches!(language, Language::C | Language::Cpp | Language::Unknown)
        && !object.allocation.iter().any(own_lines::is_new);
    let is_one = |name: &String| !name.ends_with(']');
    by_size
        && object.size.is_some()
        && object.element_size.is_none_or(|size| size <= NUMBER)
        && !object.type_name.as_ref().is_some_and(is_one)
}

/// What to do about bytes of a stack of which no variable is known.
pub(crate) fn off_the_stack(layout: &Layout, object: &Object) -> String {
    let mut seen = BTreeSet::new();
    let sites = &layout.finding.sites;
    // Nobody can change the C library's code, so the program's is named if there is any.
    let own = |s: &Site| !is_c_library(s.module.as_deref());
    let any = sites.iter().any(own);
    let code: Vec<String> = sites
        .iter()
        .filter(|s| !any || own(s))
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

/// What to add about the allocation of a block of `total` bytes whose type is aligned: `malloc` does
/// not know the type. Empty where the language's own allocation does, or where the object is no
/// heap block. A call stack begins with the allocator's caller, so `malloc` itself is not in it.
pub(crate) fn allocation_too(layout: &Layout, total: Option<u64>) -> String {
    let object = &layout.finding.object;
    let by_new = || object.allocation.iter().any(own_lines::is_new);
    let by_malloc = match layout.language {
        Language::C => true,
        Language::Cpp => !object.allocation.is_empty() && !by_new(),
        _ => false,
    };
    if object.kind != ObjectKind::Heap || !by_malloc {
        return String::new();
    }
    let total = total.map(|t| layout.whole_lines(t));
    format!(
        " Then allocate it {}, too, unless it is aligned already: `malloc` and its kin align to 16 bytes only.",
        own_lines::how(layout.language, object, layout.line_size, total)
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::Frame;

    #[test]
    fn a_programs_own_allocator_is_told_other_sizes_too() {
        let block = |name: Option<&str>, element_size| Object {
            kind: ObjectKind::Heap,
            size: Some(208),
            type_name: name.map(str::to_owned),
            element_size,
            ..Object::default()
        };
        let any = |object: &Object| may_be_of_any_size(Language::C, object);
        assert!(any(&block(None, None)));
        assert!(any(&block(Some("int[52]"), Some(4))));
        assert!(!any(&block(Some("struct queue"), None)));
        // The number of records is the program's.
        assert!(!any(&block(Some("lreg_args[4]"), Some(52))));
        let by_new = Object {
            allocation: vec![Frame {
                function: "operator new[](unsigned long)".into(),
                ..Frame::default()
            }],
            ..block(Some("int[52]"), Some(4))
        };
        assert!(!may_be_of_any_size(Language::Cpp, &by_new));
    }
}
