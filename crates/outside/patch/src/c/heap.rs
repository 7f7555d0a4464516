//! Other blocks of a type that is to be aligned. `malloc` knows nothing of a type's alignment, but
//! the compiler believes in it: so each allocation of the type, and of types that contain it, must
//! be aligned, too. `new` and containers of C++17 do that by themselves.

use crate::c::allocations::{Wanted, align_call};
use crate::c::names::{declarators, declared, element_type, nodes};
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::macros::words;
use crate::sources::{Source, Sources};
use std::collections::BTreeSet;
use tree_sitter::Node;

/// Functions that take a size and allocate nothing.
const HARMLESS: [&str; 12] = [
    "memset",
    "memcpy",
    "memmove",
    "memcmp",
    "bzero",
    "qsort",
    "printf",
    "fprintf",
    "snprintf",
    "assert",
    "madvise",
    "static_assert",
];

/// Aligns all allocations of the type.
///
/// # Errors
/// If one of them can't be aligned for sure.
pub(crate) fn align_all(
    sources: &Sources,
    name: &str,
    line: u32,
    edits: &mut Edits,
) -> Result<(), Unsure> {
    let wanted = Wanted {
        line,
        type_is_aligned: true,
    };
    for of in containing(sources, name) {
        if let Some((function, place)) = allocated_by_macro(sources, &of, edits) {
            unsure!(
                "`{of}`, too, is allocated by the macro `{function}` at {place}, which may not align it"
            );
        }
        for source in sources.with_word("sizeof", false) {
            let view = &source.views[0];
            let sizes = nodes(view.tree.root_node(), &|n| n.kind() == "sizeof_expression");
            for size in sizes {
                if size_of(sources, &source, size).as_deref() != Some(of.as_str()) {
                    continue;
                }
                let Some(call) = enclosing_call(size) else {
                    continue;
                };
                let function = call.child_by_field_name("function");
                let function = function.map_or("", |f| &source.text[f.byte_range()]);
                if HARMLESS.contains(&function.trim_start_matches("std::")) {
                    continue;
                }
                if !align_call(sources, &source, call, wanted, edits)?
                    && !edits.touches(&source.path, call.start_byte())
                {
                    unsure!(
                        "`{of}`, too, is allocated by `{function}` at {}, which may not align it",
                        source.place(call.start_byte())
                    );
                }
            }
        }
    }
    Ok(())
}

/// A call, not changed yet, of a macro that allocates and has the type among its arguments.
fn allocated_by_macro(sources: &Sources, of: &str, edits: &Edits) -> Option<(String, String)> {
    for source in sources.with_word(of, false) {
        for (at, name) in words(&source.text) {
            let rest = &source.text[at + name.len()..];
            let Some(end) = crate::macros::closing(rest) else {
                continue;
            };
            let allocates = sources.macros().definitions(name).iter().any(|d| {
                d.parameters.is_some()
                    && words(&d.body).any(|(_, w)| matches!(w, "malloc" | "calloc" | "realloc"))
            });
            let line = source.line_of(at);
            let text = source.text.lines().nth(line - 1).unwrap_or_default();
            let is_definition = text.trim_start().starts_with('#');
            let has_type = words(&rest[..end]).any(|(_, w)| w == of);
            if allocates && has_type && !is_definition && !edits.touches(&source.path, at) {
                return Some((name.to_owned(), source.place(at)));
            }
        }
    }
    None
}

/// The call whose argument the node is part of.
fn enclosing_call<'t>(node: Node<'t>) -> Option<Node<'t>> {
    let mut at = node.parent()?;
    loop {
        match at.kind() {
            "argument_list" => return at.parent().filter(|p| p.kind() == "call_expression"),
            "binary_expression"
            | "parenthesized_expression"
            | "cast_expression"
            | "conditional_expression" => {
                at = at.parent()?;
            }
            _ => return None,
        }
    }
}

/// The name, and the names of all types that have one of these as a member by value.
fn containing(sources: &Sources, name: &str) -> BTreeSet<String> {
    let mut all = BTreeSet::from([name.to_owned()]);
    let mut next = vec![name.to_owned()];
    while let Some(inner) = next.pop() {
        for source in sources.with_word(&inner, false) {
            let view = &source.views[0];
            for member in nodes(view.tree.root_node(), &|n| n.kind() == "field_declaration") {
                let Some(of) = member.child_by_field_name("type") else {
                    continue;
                };
                let by_value = declarators(member)
                    .iter()
                    .any(|d| !crate::c::names::is_pointer(*d));
                if !by_value
                    || element_type(&view.text[of.byte_range()]).as_deref() != Some(inner.as_str())
                {
                    continue;
                }
                let record = member.parent().and_then(|body| body.parent());
                let outer = record.and_then(|r| {
                    r.child_by_field_name("name").or_else(|| {
                        let around = r.parent()?;
                        declarators(around).into_iter().next()
                    })
                });
                if let Some(outer) = outer {
                    let outer = view.text[outer.byte_range()].to_owned();
                    if all.insert(outer.clone()) {
                        next.push(outer);
                    }
                }
            }
        }
    }
    all
}

/// The type whose size an expression of `sizeof` takes, if it is a record.
fn size_of(sources: &Sources, source: &Source, size: Node) -> Option<String> {
    let text = &source.text;
    if let Some(of) = size.child_by_field_name("type") {
        return element_type(&text[of.byte_range()]);
    }
    let value = size.child_by_field_name("value")?;
    let told = &text[value.byte_range()];
    // `sizeof(counter)` of a type looks like a variable in parentheses.
    let inside = told.trim_matches(['(', ')', ' ']);
    let last = words(inside).last().map(|(_, word)| word)?;
    if inside == last && !told.contains('*') {
        let is_variable = !types_of(source, last).is_empty();
        return if is_variable {
            types_of(source, last).into_iter().next()
        } else {
            element_type(last)
        };
    }
    // `sizeof *p`, `sizeof **p`, `sizeof p[0]`, `sizeof *a->p`.
    let pointer = if inside.ends_with(']') {
        words(inside).next().map(|(_, w)| w)?
    } else {
        last
    };
    types_of(source, pointer).into_iter().next().or_else(|| {
        let others = sources.with_word(pointer, false);
        others
            .iter()
            .find_map(|other| types_of(other, pointer).into_iter().next())
    })
}

/// The record types with which a file declares a variable, member or parameter of this name.
fn types_of(source: &Source, name: &str) -> Vec<String> {
    let view = &source.views[0];
    let all = nodes(view.tree.root_node(), &|n| {
        matches!(
            n.kind(),
            "declaration" | "field_declaration" | "parameter_declaration"
        )
    });
    let of_this_name = all.into_iter().filter(|declaration| {
        declarators(*declaration)
            .into_iter()
            .filter_map(declared)
            .any(|n| &view.text[n.byte_range()] == name)
    });
    of_this_name
        .filter_map(|d| d.child_by_field_name("type"))
        .filter_map(|t| element_type(&view.text[t.byte_range()]))
        .collect()
}
