//! The wrapper that gives a value lines of its own: what it must be able to do, and where a value can't be
//! wrapped because a use needs the value itself.

use crate::c::names::{around, nodes};
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::rust::structure::Structure;
use crate::sources::{Source, Sources};
use std::collections::BTreeSet;
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

/// Whether a wrapper in front of the item that begins at `at` can be named at the byte `from` of the same
/// file: in the same module, or in one within that takes all names of the outer one.
pub(super) fn can_be_named(source: &Source, at: usize, from: usize) -> bool {
    let view = &source.views[0];
    let root = view.tree.root_node();
    let node = |at: usize| root.descendant_for_byte_range(at, at + 1).unwrap_or(root);
    let scope = around(node(at), &has_own_names).unwrap_or(root);
    let takes_all = |part: Node| {
        let text: String = view.text[part.byte_range()].split_whitespace().collect();
        part.kind() == "use_declaration" && text == "usesuper::*;"
    };
    let mut inner = node(from);
    while inner != scope {
        if inner.kind() == "declaration_list" && has_own_names(inner) {
            let mut cursor = inner.walk();
            if !inner.children(&mut cursor).any(takes_all) {
                return false;
            }
        }
        let Some(outer) = inner.parent() else {
            return false;
        };
        inner = outer;
    }
    true
}

/// Whether the names of the items in it can't be used outside: a block, or the body of a module.
fn has_own_names(node: Node) -> bool {
    let is_module = |n: Node| n.kind() == "mod_item";
    node.kind() == "block"
        || node.kind() == "declaration_list" && node.parent().is_some_and(is_module)
}

/// The visibility of the members or the variable whose types begin at these bytes. The type of what is used
/// elsewhere must not be private there.
fn visibility(source: &Source, types: &[usize]) -> String {
    let root = source.views[0].tree.root_node();
    let is_declaration = |n: Node| matches!(n.kind(), "field_declaration" | "static_item");
    let mut told = BTreeSet::new();
    for &at in types {
        let node = root.descendant_for_byte_range(at, at + 1);
        if let Some(declaration) = node.and_then(|n| around(n, &is_declaration)) {
            let mut cursor = declaration.walk();
            let mut parts = declaration.children(&mut cursor);
            let own = parts.find(|part| part.kind() == "visibility_modifier");
            told.extend(own.map(|own| &source.text[own.byte_range()]));
        }
    }
    let mut all = told.into_iter();
    match (all.next(), all.next()) {
        (None, _) => String::new(),
        (Some(one), None) => format!("{one} "),
        (Some(_), Some(_)) => "pub ".to_owned(),
    }
}

/// Defines the wrapper in front of the item that begins at `at`, and of what belongs to it. What is wrapped
/// are the types that begin at `wrapped`.
pub(super) fn add_wrapper(
    source: &Source,
    at: usize,
    wrapped: &[usize],
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
    let visibility = visibility(source, wrapped);
    let mut text = format!(
        "/// A value with cache lines of its own.\n{derived}#[repr(align({line}))]\n{visibility}struct {WRAPPER}<T>(T);\n\n\
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
    // As far to the right as the item, whose own indent stays in front of the first line.
    let before = &source.text[..first.start_byte()];
    let indent: String = before[before.rfind('\n').map_or(0, |n| n + 1)..]
        .chars()
        .take_while(|c| c.is_whitespace())
        .collect();
    let text = text.replace('\n', &format!("\n{indent}"));
    let text = text.replace(&format!("\n{indent}\n"), "\n\n");
    edits.insert(&source.path, first.start_byte(), text);
    Ok(())
}
