//! Where an array that is to be spread begins: its first name, and where its size is written. Also what
//! a name means at a place. Only reads the sources, but for the alignment of a variable.

use super::uses::Holder;
use crate::c::allocations::{self, AllocationSite};
use crate::c::names::{around, declarators, declared, nodes};
use crate::c::spelling::Spelling;
use crate::c::variables;
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::macros::words;
use crate::sources::{Source, Sources};
use std::ops::Range;
use std::rc::Rc;
use sunder_findings::{Object, ObjectKind};
use tree_sitter::Node;

/// A name for the array's first element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Name {
    pub(super) text: String,
    /// The part of the source in which it has this meaning.
    pub(super) scope: Range<usize>,
    /// The name at its declaration.
    pub(super) declared: Range<usize>,
    pub(super) holder: Holder,
}

/// How the size of the array is written.
pub(super) enum Storage {
    /// As the size of an array or in `new T[n]`, or the first argument of a vector.
    Count(Range<usize>),
    /// As the size of a block.
    Block(AllocationSite),
}

pub(super) struct Begun {
    pub(super) source: Rc<Source>,
    pub(super) first: Name,
    pub(super) storage: Storage,
    /// The byte of the first change.
    pub(super) at: usize,
}

/// The array's first name, and where its size is written.
pub(super) fn begin(
    sources: &Sources,
    object: &Object,
    spelling: Spelling,
    line: u32,
    edits: &mut Edits,
) -> Result<Begun, Unsure> {
    if object.kind != ObjectKind::Heap {
        let variable = variables::find(sources, object)?;
        let source = Rc::clone(&variable.source);
        let place = source.place(variable.declaration.start);
        let node = node_at(&source, &variable.declarator, &["array_declarator"]);
        let size = node.and_then(|n| n.child_by_field_name("size"));
        let (Some(node), Some(size)) = (node, size) else {
            unsure!("`{}` at {place} is no array with a size", variable.name);
        };
        let name = declared(node).filter(|_| {
            node.child_by_field_name("declarator")
                .is_some_and(|d| d.kind() == "identifier")
        });
        let Some(name) = name.filter(|_| variable.of == 1) else {
            unsure!(
                "`{}` at {place} is declared together with others, or has several dimensions",
                variable.name
            );
        };
        if let Some(value) = &variable.value {
            let text: String = source.text[value.clone()]
                .chars()
                .filter(|c| !c.is_whitespace())
                .collect();
            if !matches!(text.as_str(), "{0}" | "{}") {
                unsure!(
                    "the initial values of `{}` would have to be rewritten, too",
                    variable.name
                );
            }
        }
        variable.align(spelling, line, edits);
        let first = named(sources, &source, name, Holder::Array)?;
        return Ok(Begun {
            at: variable.declaration.start,
            storage: Storage::Count(size.byte_range()),
            first,
            source: Rc::clone(&variable.source),
        });
    }
    let by_new = |f: &sunder_findings::Frame| f.function.starts_with("operator new");
    if !object.allocation.iter().any(by_new) {
        let site = allocations::site(sources, object)?;
        let source = Rc::clone(&site.source);
        let Some(call) = node_at(&source, &site.range(), &["call_expression"]) else {
            unsure!(
                "the allocation at {} can't be read",
                source.place(site.range().start)
            );
        };
        let holder = holder(call, &source)?;
        let first = named(sources, &source, holder, Holder::Pointer)?;
        return Ok(Begun {
            at: call.start_byte(),
            storage: Storage::Block(site),
            first,
            source: Rc::clone(&source),
        });
    }
    let mut frames = object.allocation.iter().filter(|f| !f.is_library());
    let place = frames.find_map(|f| Some((f.file.as_deref()?, f.line?)));
    let Some((file, line)) = place else {
        unsure!("the result does not say where the block is allocated");
    };
    let source = sources.source(&sources.locate(file)?)?;
    let row = (line as usize).saturating_sub(1);
    let root = source.views[0].tree.root_node();
    let on_line = |n: &Node| (n.start_position().row..=n.end_position().row).contains(&row);
    let made = nodes(root, &|n| n.kind() == "new_expression" && on_line(&n));
    if let [new] = made[..] {
        let size = new.child_by_field_name("declarator");
        let Some(size) = size.and_then(|d| d.child_by_field_name("length").or(d.named_child(0)))
        else {
            unsure!("`new` at {file}:{line} makes no array");
        };
        let holder = holder(new, &source)?;
        let first = named(sources, &source, holder, Holder::Pointer)?;
        return Ok(Begun {
            at: new.start_byte(),
            storage: Storage::Count(size.byte_range()),
            first,
            source: Rc::clone(&source),
        });
    }
    vector(
        sources,
        &source,
        &nodes(root, &|n| n.kind() == "declaration" && on_line(&n)),
    )
}

/// `std::vector<T> name(count)`.
fn vector(sources: &Sources, source: &Rc<Source>, all: &[Node]) -> Result<Begun, Unsure> {
    let text = &source.text;
    let is_vector = |n: &&Node| {
        n.child_by_field_name("type")
            .is_some_and(|t| text[t.byte_range()].starts_with("std::vector<"))
    };
    let own: Vec<&Node> = all.iter().filter(is_vector).collect();
    let [declaration] = own[..] else {
        unsure!("the block comes from `new` in a library, for something that is not seen");
    };
    let place = source.place(declaration.start_byte());
    let [one] = declarators(*declaration)[..] else {
        unsure!("several variables are declared at {place}");
    };
    // `name(count)` looks like a function with one parameter.
    let (name, list) = match one.kind() {
        "init_declarator" => (
            one.child_by_field_name("declarator"),
            one.child_by_field_name("value"),
        ),
        "function_declarator" => (
            one.child_by_field_name("declarator"),
            one.child_by_field_name("parameters"),
        ),
        _ => (None, None),
    };
    let list = list.filter(|l| matches!(l.kind(), "argument_list" | "parameter_list"));
    // Two iterators would be a range: what stands behind the count is a plain value.
    let is_value = |second: Node| text[second.byte_range()].parse::<f64>().is_ok();
    let list = list.filter(|l| l.named_child(1).is_none_or(is_value));
    let count = list.and_then(|l| l.named_child(0));
    let (Some(name), Some(count)) = (name.filter(|n| n.kind() == "identifier"), count) else {
        unsure!("how many elements the vector at {place} has is not seen");
    };
    Ok(Begun {
        at: declaration.start_byte(),
        storage: Storage::Count(count.byte_range()),
        first: named(sources, source, name, Holder::Vector)?,
        source: Rc::clone(source),
    })
}

/// The name of the variable that a new block is put into.
fn holder<'t>(made: Node<'t>, source: &Source) -> Result<Node<'t>, Unsure> {
    let mut at = made;
    while let Some(parent) = at.parent() {
        match parent.kind() {
            "cast_expression" | "parenthesized_expression" => at = parent,
            "init_declarator" => {
                let name = parent.child_by_field_name("declarator").and_then(declared);
                if let Some(name) = name {
                    return Ok(name);
                }
                break;
            }
            "assignment_expression" => {
                let left = parent.child_by_field_name("left");
                if let Some(left) = left.filter(|l| l.kind() == "identifier" && *l != at) {
                    return Ok(left);
                }
                break;
            }
            _ => break,
        }
    }
    unsure!(
        "the block at {} is not kept in a plain variable",
        source.place(made.start_byte())
    )
}

/// The name at `node`, with the scope of the variable that it means.
pub(super) fn named(
    sources: &Sources,
    source: &Source,
    node: Node,
    holder: Holder,
) -> Result<Name, Unsure> {
    let text = source.text[node.byte_range()].to_owned();
    let all = declarations_of(source, &text);
    let function = around(node, &|n| n.kind() == "function_definition").map(|f| f.byte_range());
    let local = function.clone().and_then(|f| {
        let inside = all.iter().find(|n| f.contains(&n.start_byte()));
        inside.map(|n| (n.byte_range(), f))
    });
    if let Some((declared, scope)) = local {
        return Ok(Name {
            text,
            scope,
            declared,
            holder,
        });
    }
    let global = all
        .iter()
        .find(|n| around(**n, &|n| n.kind() == "function_definition").is_none());
    let Some(global) = global else {
        unsure!(
            "the declaration of `{text}` is not in {}",
            source.path.display()
        );
    };
    let others = sources.with_word(&text, false);
    let other = others.iter().find(|other| {
        other.path != source.path && words(&other.text).any(|(_, word)| word == text)
    });
    if let Some(other) = other {
        unsure!("`{text}` is used in {}, too", other.path.display());
    }
    Ok(Name {
        declared: global.byte_range(),
        text,
        scope: 0..source.text.len(),
        holder,
    })
}

/// The names of all variables and parameters that are declared by this name.
pub(super) fn declarations_of<'s>(source: &'s Source, name: &str) -> Vec<Node<'s>> {
    let root = source.views[0].tree.root_node();
    let all = nodes(root, &|n| {
        matches!(
            n.kind(),
            "declaration" | "parameter_declaration" | "optional_parameter_declaration"
        )
    });
    let of = |n: Node<'s>| {
        declarators(n).into_iter().filter_map(|d| match d.kind() {
            // `std::vector<long> name(count)` looks like a function.
            "function_declarator" => d
                .child_by_field_name("declarator")
                .filter(|d| d.kind() == "identifier"),
            _ => declared(d),
        })
    };
    let mut found: Vec<Node<'s>> = all.into_iter().flat_map(of).collect();
    found.retain(|n| &source.text[n.byte_range()] == name);
    found
}

/// The smallest node of one of these kinds that has exactly these bytes.
pub(super) fn node_at<'s>(
    source: &'s Source,
    range: &Range<usize>,
    kinds: &[&str],
) -> Option<Node<'s>> {
    source.views.iter().find_map(|view| {
        let root = view.tree.root_node();
        let node = root.descendant_for_byte_range(range.start, range.end)?;
        around(node, &|n| {
            kinds.contains(&n.kind()) && n.byte_range() == *range
        })
    })
}
