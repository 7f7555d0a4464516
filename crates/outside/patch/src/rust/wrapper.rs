//! The wrapper that gives a value lines of its own: what it must be able to do, and where a value can't be
//! wrapped because a use needs the value itself.

use crate::c::names::{around, nodes};
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::rust::structure::Structure;
use crate::sources::{Source, Sources};
use std::rc::Rc;
use tree_sitter::Node;

/// The name of the wrapper, which is that of crossbeam's.
pub(super) const WRAPPER: &str = "CachePadded";

/// What a struct may derive if a member of it is wrapped: the wrapper has it as well.
const DERIVED: [&str; 2] = ["Debug", "Default"];

/// Whether the member `member` of the struct, whose type begins at `at`, can be wrapped: its uses stay as
/// they are.
///
/// # Errors
/// If the struct derives what the wrapper has not, or a use needs the member itself: which.
pub(super) fn can_be_wrapped(
    sources: &Sources,
    found: &Structure,
    (member, at): (&str, usize),
) -> Result<(), Unsure> {
    let name = found.name.as_str();
    for list in found.attributes.split("derive(").skip(1) {
        let list = list.split(')').next().unwrap_or_default();
        let derived = list.split(',').map(str::trim).filter(|one| !one.is_empty());
        for one in derived {
            let last = one.rsplit("::").next().unwrap_or(one);
            if !DERIVED.contains(&last) {
                unsure!("`{name}` derives `{one}`, which a wrapper around `{member}` has not");
            }
        }
    }
    // What is private is used in the same file; children of its module in others are rare, and would not
    // compile with the diff.
    let all = match is_private(&found.source, at) {
        true => vec![Rc::clone(&found.source)],
        false => sources.with_word(member, true),
    };
    for source in all {
        let view = &source.views[0];
        let text = |n: Node| view.text[n.byte_range()].trim();
        let root = view.tree.root_node();
        let is_member = |n: Node| {
            n.kind() == "field_expression"
                && n.child_by_field_name("field").map(text) == Some(member)
        };
        let needed = |at: usize| {
            let place = source.place(at);
            // Of which struct the member is there, the text does not tell.
            unsure!("`{member}` of `{name}` can't be wrapped: {place} may need the value itself");
        };
        for one in nodes(root, &is_member) {
            if !is_used_through(one, &text) {
                return needed(one.start_byte());
            }
        }
        // In the arguments of a macro, which have no structure.
        let taken = format!(".{member}.into_inner");
        if let Some(at) = view.text.find(&taken) {
            return needed(at);
        }
        let patterns = nodes(root, &|n| {
            let of = n.child_by_field_name("type").map(text);
            let is_own = of.is_some_and(|of| of == "Self" || of.rsplit("::").next() == Some(name));
            n.kind() == "struct_pattern" && is_own
        });
        for one in patterns {
            if crate::macros::words(text(one)).any(|(_, word)| word == member) {
                return needed(one.start_byte());
            }
        }
    }
    Ok(())
}

/// Whether the member whose type begins at `at` has no `pub`.
fn is_private(source: &Source, at: usize) -> bool {
    let root = source.views[0].tree.root_node();
    let node = root.descendant_for_byte_range(at, at + 1);
    let field = node.and_then(|n| around(n, &|n| n.kind() == "field_declaration"));
    field.is_some_and(|field| {
        let mut cursor = field.walk();
        let mut parts = field.children(&mut cursor);
        !parts.any(|part| part.kind() == "visibility_modifier")
    })
}

/// Whether the member is used as what it dereferences to: by a method other than one that takes it, or by a
/// reference that is passed on or has a name.
fn is_used_through<'a>(member: Node, text: &impl Fn(Node) -> &'a str) -> bool {
    let Some(outer) = member.parent() else {
        return false;
    };
    match outer.kind() {
        "field_expression" => {
            let called = outer.parent().is_some_and(|call| {
                call.kind() == "call_expression"
                    && call.child_by_field_name("function") == Some(outer)
            });
            called && outer.child_by_field_name("field").map(text) != Some("into_inner")
        }
        "reference_expression" => outer
            .parent()
            .is_some_and(|n| matches!(n.kind(), "arguments" | "let_declaration")),
        _ => false,
    }
}

/// Defines the wrapper in front of the item that begins at `at`, and of what belongs to it.
pub(super) fn add_wrapper(
    source: &Source,
    at: usize,
    line: u32,
    edits: &mut Edits,
) -> Result<(), Unsure> {
    let has = |wanted: &str| crate::macros::words(&source.text).any(|(_, word)| word == wanted);
    if has(WRAPPER) {
        unsure!("{} has a `{WRAPPER}` already", source.path.display());
    }
    let root = source.views[0].tree.root_node();
    let item = root.descendant_for_byte_range(at, at + 1);
    let item = item.and_then(|n| around(n, &|n| matches!(n.kind(), "struct_item" | "static_item")));
    let Some(mut first) = item else {
        unsure!("the item at {} can't be read", source.place(at));
    };
    while let Some(before) = first.prev_sibling() {
        if !matches!(
            before.kind(),
            "attribute_item" | "line_comment" | "block_comment"
        ) || source.text[before.end_byte()..first.start_byte()]
            .matches('\n')
            .count()
            > 1
        {
            break;
        }
        first = before;
    }
    let derived = if has("Default") {
        "#[derive(Default)]\n"
    } else {
        ""
    };
    let mut text = format!(
        "/// A value with cache lines of its own.\n{derived}#[repr(align({line}))]\nstruct {WRAPPER}<T>(T);\n\n\
         impl<T> std::ops::Deref for {WRAPPER}<T> {{\n    type Target = T;\n\n    fn deref(&self) -> &T {{\n        \
         &self.0\n    }}\n}}\n\n"
    );
    // What the file never asks of the value, the wrapper need not do.
    if has("get_mut") {
        text.push_str(&format!(
            "impl<T> std::ops::DerefMut for {WRAPPER}<T> {{\n    fn deref_mut(&mut self) -> &mut T {{\n        \
             &mut self.0\n    }}\n}}\n\n"
        ));
    }
    if has("Debug") || source.text.contains("?}") {
        text.push_str(&format!(
            "impl<T: std::fmt::Debug> std::fmt::Debug for {WRAPPER}<T> {{\n    \
             fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {{\n        self.0.fmt(f)\n    }}\n}}\n\n"
        ));
    }
    edits.insert(&source.path, first.start_byte(), text);
    Ok(())
}
