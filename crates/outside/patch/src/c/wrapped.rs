//! Arrays whose elements are numbers or a library's: each becomes a member of an aligned struct,
//! and each use of an element names that member. Done only if every use is seen and plain.

use crate::c::names::{around, nodes};
use crate::c::spelling::Spelling;
use crate::c::variables::Variable;
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::sources::Sources;
use tree_sitter::Node;

/// Gives each element of the array `variable` lines of its own.
///
/// # Errors
/// If a use can't be rewritten for sure.
pub(crate) fn wrap(
    sources: &Sources,
    variable: &Variable,
    spelling: Spelling,
    line: u32,
    edits: &mut Edits,
) -> Result<(), Unsure> {
    let source = &variable.source;
    let name = &variable.name;
    let file = &source.path;
    let Some(view) = source.views.iter().find(|view| {
        let root = view.tree.root_node();
        root.descendant_for_byte_range(variable.declarator.start, variable.declarator.end)
            .is_some_and(|n| n.kind() == "array_declarator")
    }) else {
        unsure!("`{name}` is no array at its declaration");
    };
    let declarator = &source.text[variable.declarator.clone()];
    if variable.of > 1 || declarator.matches('[').count() != 1 || declarator.starts_with(['*', '('])
    {
        unsure!(
            "`{name}` at {} is declared together with others, or has several dimensions",
            source.place(variable.declaration.start)
        );
    }
    if let Some(value) = &variable.value {
        let text: String = source.text[value.clone()]
            .chars()
            .filter(|c| !c.is_whitespace())
            .collect();
        if !matches!(text.as_str(), "{0}" | "{}" | "{{0}}") {
            unsure!("the initial values of `{name}` would have to be rewritten, too");
        }
    }
    if !variable.is_local {
        let others = sources.with_word(name, false);
        let other = others.iter().find(|other| {
            other.path != *file && crate::macros::words(&other.text).any(|(_, word)| word == name)
        });
        if let Some(other) = other {
            unsure!(
                "`{name}` is used in {}, too, and its elements are no type of yours",
                other.path.display()
            );
        }
    }
    if let Some(definition) = sources.macros().mentioning(name).first() {
        unsure!("the macro `{definition}` uses `{name}`");
    }
    let scope = variable.function.clone().unwrap_or(0..source.text.len());
    let uses = nodes(view.tree.root_node(), &|n| {
        matches!(n.kind(), "identifier" | "field_identifier")
            && scope.contains(&n.start_byte())
            && !variable.declaration.contains(&n.start_byte())
            && &view.text[n.byte_range()] == name
    });
    let mut changed = Edits::default();
    for one in uses {
        if one.kind() == "field_identifier" {
            continue;
        }
        let place = source.place(one.start_byte());
        if is_declared_again(one) {
            unsure!("another `{name}` is declared at {place}");
        }
        let is_measured = around(one, &|n| n.kind() == "sizeof_expression").is_some();
        if is_measured {
            continue;
        }
        let Some(element) = one.parent().filter(|p| {
            p.kind() == "subscript_expression" && p.child_by_field_name("argument") == Some(one)
        }) else {
            if is_set_to_zero(one, &view.text) {
                continue;
            }
            unsure!(
                "`{name}` is used as a whole at {place}: what happens to its elements there is not known"
            );
        };
        if is_walked(element, &view.text) {
            unsure!(
                "the address of an element of `{name}` is taken at {place}, and may lead to the next one"
            );
        }
        changed.insert(file, element.end_byte(), ".value");
    }
    let of = &source.text[variable.type_range.clone()];
    let align = spelling.before(source.language, line);
    let structure = format!("struct {{ {align} {of} value; }}");
    // Qualifiers that stand before the type stay there, and would qualify the struct.
    let before = &source.text[variable.declaration.start..variable.type_range.start];
    if before.contains("const") || before.contains('(') {
        unsure!("the type of `{name}` can't be wrapped as it is written");
    }
    changed.replace(file, variable.type_range.clone(), structure);
    edits.merge(&changed)
}

/// Whether the name is that of another variable or parameter.
fn is_declared_again(name: Node) -> bool {
    let mut at = name;
    while let Some(parent) = at.parent() {
        match parent.kind() {
            "array_declarator" | "pointer_declarator" | "init_declarator" => {
                if parent.child_by_field_name("declarator") != Some(at) {
                    return false;
                }
            }
            "declaration" | "parameter_declaration" => {
                let mut cursor = parent.walk();
                return parent
                    .children_by_field_name("declarator", &mut cursor)
                    .any(|d| d == at);
            }
            _ => return false,
        }
        at = parent;
    }
    false
}

/// `memset(name, 0, sizeof name)`.
fn is_set_to_zero(name: Node, text: &str) -> bool {
    let call = name.parent().and_then(|list| list.parent());
    call.is_some_and(|call| {
        let told: String = text[call.byte_range()]
            .chars()
            .filter(|c| !c.is_whitespace())
            .collect();
        let own = &text[name.byte_range()];
        told == format!("memset({own},0,sizeof{own})")
            || told == format!("memset({own},0,sizeof({own}))")
    })
}

/// Whether the element's address is taken with a constant number: that is how one walks through
/// an array. With a variable number it is one thread's element.
fn is_walked(element: Node, text: &str) -> bool {
    let taken = element
        .parent()
        .is_some_and(|p| p.kind() == "pointer_expression" && text[p.byte_range()].starts_with('&'));
    let index = element
        .child_by_field_name("index")
        .or_else(|| element.named_child(1));
    taken
        && index.is_some_and(|i| {
            text[i.byte_range()]
                .trim_matches(['[', ']'])
                .parse::<u64>()
                .is_ok()
        })
}
