//! Carries the advice for one finding out in Rust: the alignment of the user's own types, and a
//! wrapper for elements of a static array and members that are a library's. Rust's allocations know
//! the alignment of types, so a block follows its type.

mod structure;
mod wrapper;

use self::structure::{Structure, structure};
use self::wrapper::{WRAPPER, add_wrapper, can_be_named, can_be_wrapped};
use crate::c::names::nodes;
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::shape::{self, Shape};
use crate::sources::{Source, Sources};
use crate::way::Way;
use sunder_findings::{Finding, ObjectKind};
use tree_sitter::Node;

/// Types with interior mutability, whose methods take `&self`: they are used through `Deref` as
/// they are used by themselves.
const SHARED: [&str; 5] = [
    "Atomic",
    "Mutex<",
    "RwLock<",
    "std::sync::atomic::",
    "core::sync::atomic::",
];

/// All changes that are certain, the best first; or why there is none.
pub(crate) fn ways(sources: &Sources, finding: &Finding, line: u32) -> Result<Vec<Way>, Unsure> {
    let way = match Shape::of(finding, line) {
        Shape::Elements { path } => elements(sources, finding, &path, line)?,
        Shape::Members { path, breaks, .. } if path.is_empty() => {
            members(sources, finding, &breaks, line)?
        }
        Shape::Members { path, .. } => unsure!(
            "the members are those of `{}`, inside another type",
            path.join(".")
        ),
        Shape::Neighbours => neighbours(sources, finding, line)?,
        Shape::Slices => unsure!(
            "each thread works on a run of elements, and how the program divides them is not seen"
        ),
        Shape::Other(why) => unsure!("{why}"),
    };
    Ok(vec![way])
}

fn elements(
    sources: &Sources,
    finding: &Finding,
    path: &[String],
    line: u32,
) -> Result<Way, Unsure> {
    let object = &finding.object;
    let whole = object.type_name.as_deref().unwrap_or_default();
    let mut of = element(whole).to_owned();
    for step in path {
        let outer = structure(sources, &of)?;
        // Debug information calls the members of a tuple `__0`, and people call them `0`.
        let name = step.trim_start_matches("__");
        let Some((_, inner)) = outer
            .members
            .iter()
            .find(|(own, _)| own == name || own == step)
        else {
            unsure!("`{of}` has no member `{name}`");
        };
        of = element(&outer.source.text[inner.clone()]).to_owned();
    }
    let mut edits = Edits::default();
    let padded = finding.advice.first().and_then(|a| a.grows_by);
    let what = if let Ok(found) = structure(sources, &of) {
        align(&found, line, &mut edits)?;
        format!("each `{}` has lines of its own", found.name)
    } else if object.kind == ObjectKind::Global && path.is_empty() {
        wrap_static(sources, finding, line, &mut edits)?
    } else {
        unsure!("`{of}` is not a type of yours, and where it is used can't be seen for sure");
    };
    Ok(Way {
        what,
        edits,
        notes: Vec::new(),
        grows_by: padded,
    })
}

/// Two objects on one line: their types are aligned, if they are the user's.
fn neighbours(sources: &Sources, finding: &Finding, line: u32) -> Result<Way, Unsure> {
    let mut edits = Edits::default();
    let mut names = Vec::new();
    for object in std::iter::once(&finding.object).chain(&finding.neighbour) {
        let found = structure(
            sources,
            element(object.type_name.as_deref().unwrap_or_default()),
        )?;
        if !names.contains(&found.name) {
            align(&found, line, &mut edits)?;
            names.push(found.name);
        }
    }
    Ok(Way {
        what: format!("each `{}` has lines of its own", names.join("` and `")),
        edits,
        notes: Vec::new(),
        grows_by: finding.advice.first().and_then(|a| a.grows_by),
    })
}

/// Members of different threads: those that begin a line are aligned, by their type or a wrapper, and so
/// are those before them, since Rust orders members as it likes.
fn members(
    sources: &Sources,
    finding: &Finding,
    breaks: &[String],
    line: u32,
) -> Result<Way, Unsure> {
    let whole = finding.object.type_name.as_deref().unwrap_or_default();
    let found = structure(sources, element(whole))?;
    let all = shape::members(finding);
    let mut edits = Edits::default();
    let mut names = Vec::new();
    let mut wrapped = Vec::new();
    let mut stays = None;
    for (name, of) in found.members.iter().filter(|(name, _)| all.contains(name)) {
        let text = &found.source.text[of.clone()];
        // A type of the user's own is aligned, which changes none of its uses.
        if let Ok(own) = structure(sources, text)
            && own.name == text
        {
            align(&own, line, &mut edits)?;
            names.push(format!("`{name}`"));
            continue;
        }
        if !SHARED.iter().any(|s| text.starts_with(s)) {
            // One may stay as it is: all the others leave its line.
            if let Some(other) = stays.replace(name) {
                unsure!(
                    "`{}.{other}` and `.{name}` are of types whose uses would have to be rewritten",
                    found.name
                );
            }
            continue;
        }
        wrapped.push(of.start);
        can_be_wrapped(sources, &found, (name, of.start))?;
        edits.replace(&found.source.path, of.clone(), format!("{WRAPPER}<{text}>"));
        initial_values(sources, &found, name, &mut edits)?;
        names.push(format!("`{name}`"));
    }
    if names.len() + usize::from(stays.is_some()) < 2 || names.is_empty() {
        unsure!(
            "{} of `{}` can't be wrapped",
            breaks.join(" and "),
            found.name
        );
    }
    if !wrapped.is_empty() {
        add_wrapper(&found.source, found.start, &wrapped, line, &mut edits)?;
    }
    Ok(Way {
        what: format!(
            "{} of `{}` have lines of their own",
            names.join(" and "),
            found.name
        ),
        edits,
        notes: Vec::new(),
        grows_by: finding.advice.first().and_then(|a| a.grows_by),
    })
}

/// The element's type in `[T; 4]`, `Vec<T>`, `Box<[T]>`, `Arc<T>` and the like, without its path.
fn element(name: &str) -> &str {
    let mut name = name.trim();
    loop {
        let before = name;
        // How results write that a block has several elements: `Slot[4]`.
        if let Some((of, count)) = name.rsplit_once('[')
            && count
                .strip_suffix(']')
                .is_some_and(|n| n.parse::<u64>().is_ok())
            && !of.is_empty()
        {
            name = of.trim();
        }
        if let Some(inside) = name.strip_prefix('[') {
            name = inside
                .rsplit_once(';')
                .map_or(inside.trim_end_matches(']'), |(of, _)| of)
                .trim();
        }
        for container in [
            "Vec<",
            "Box<",
            "Arc<",
            "alloc::vec::Vec<",
            "alloc::boxed::Box<",
            "alloc::sync::Arc<",
        ] {
            if let Some(inside) = name.strip_prefix(container) {
                let end = inside
                    .find(',')
                    .or_else(|| inside.rfind('>'))
                    .unwrap_or(inside.len());
                name = inside[..end].trim();
            }
        }
        if name == before {
            break;
        }
    }
    let path = name.split('<').next().unwrap_or(name);
    match path.rfind("::") {
        Some(at) => &name[at + 2..],
        None => name,
    }
}

fn align(found: &Structure, line: u32, edits: &mut Edits) -> Result<(), Unsure> {
    let attributes: String = found
        .attributes
        .chars()
        .filter(|c| !c.is_whitespace())
        .collect();
    let place = found.source.place(found.start);
    for (what, why) in [
        ("repr(C", "its layout is that of an interface to C"),
        ("packed", "it is packed: its layout is prescribed"),
        ("transparent", "it has the layout of its only member"),
    ] {
        if attributes.contains(what) {
            unsure!("`{}` at {place} is not aligned: {why}", found.name);
        }
    }
    if attributes.contains("#[repr(align(") {
        unsure!("`{}` at {place} is aligned already", found.name);
    }
    let text = &found.source.text;
    let indent_start = text[..found.start].rfind('\n').map_or(0, |n| n + 1);
    let indent: String = text[indent_start..found.start]
        .chars()
        .take_while(|c| c.is_whitespace())
        .collect();
    edits.insert(
        &found.source.path,
        found.start,
        format!("#[repr(align({line}))]\n{indent}"),
    );
    Ok(())
}

/// Wraps the elements of `static NAME: [T; N] = [VALUE; N];`.
fn wrap_static(
    sources: &Sources,
    finding: &Finding,
    line: u32,
    edits: &mut Edits,
) -> Result<String, Unsure> {
    let object = &finding.object;
    let whole = object.name.as_deref().unwrap_or_default();
    let name = whole.rsplit("::").next().unwrap_or(whole);
    let Some(declared) = &object.declared else {
        unsure!("the result does not say where `{name}` is declared");
    };
    let path = sources.locate(&declared.file)?;
    let source = sources.source(&path)?;
    let row = declared.line.unwrap_or(0).saturating_sub(1) as usize;
    let view = &source.views[0];
    let items = nodes(view.tree.root_node(), &|n| n.kind() == "static_item");
    let found = items.into_iter().find(|item| {
        let own = item
            .child_by_field_name("name")
            .map(|n| &view.text[n.byte_range()]);
        own == Some(name) && (item.start_position().row..=item.end_position().row).contains(&row)
    });
    let Some(item) = found.filter(|item| !item.has_error()) else {
        unsure!(
            "`{name}` is not declared at line {} of {}: the source has changed",
            row + 1,
            path.display()
        );
    };
    let of = item
        .child_by_field_name("type")
        .filter(|t| t.kind() == "array_type");
    let of = of.and_then(|t| t.child_by_field_name("element"));
    let value = item
        .child_by_field_name("value")
        .filter(|v| v.kind() == "array_expression");
    let (Some(of), Some(value)) = (of, value) else {
        unsure!("`{name}` is no array with its values beside it");
    };
    let of_text = &view.text[of.byte_range()];
    if !SHARED.iter().any(|s| of_text.starts_with(s)) {
        unsure!(
            "the elements of `{name}` are `{of_text}`, which is not defined below {}, and a wrapper would \
             change how they are used",
            sources.root().display()
        );
    }
    // Elsewhere an element, or a reference to one, may be given a type by hand.
    let uses = nodes(view.tree.root_node(), &|n| {
        n.kind() == "identifier"
            && &view.text[n.byte_range()] == name
            && !item.byte_range().contains(&n.start_byte())
    });
    for one in uses {
        let indexed = one
            .parent()
            .filter(|p| p.kind() == "index_expression" && p.named_child(0) == Some(one));
        let iterated = one.parent().filter(|p| {
            p.kind() == "field_expression"
                && p.child_by_field_name("field")
                    .is_some_and(|f| matches!(&view.text[f.byte_range()], "iter" | "len"))
        });
        if indexed.is_none() && iterated.is_none() {
            unsure!(
                "`{name}` is used as a whole at {}",
                source.place(one.start_byte())
            );
        }
    }
    edits.replace(&path, of.byte_range(), format!("{WRAPPER}<{of_text}>"));
    let mut cursor = value.walk();
    let repeated = view.text[value.byte_range()].contains(';')
        && value.child_by_field_name("length").is_some();
    let count = value.named_child_count();
    for (i, one) in value.named_children(&mut cursor).enumerate() {
        if repeated && i + 1 == count {
            continue;
        }
        wrap_value(&source, one, repeated, edits);
    }
    add_wrapper(&source, item.start_byte(), &[of.start_byte()], line, edits)?;
    Ok(format!(
        "each element of `{name}` is wrapped in an aligned struct"
    ))
}

fn wrap_value(source: &Source, value: Node, repeated: bool, edits: &mut Edits) {
    let text = &source.text[value.byte_range()];
    let new = match text.strip_prefix("const").map(str::trim) {
        Some(block) if block.starts_with('{') => {
            let inside = block.trim_start_matches('{').trim_end_matches('}').trim();
            format!("const {{ {WRAPPER}({inside}) }}")
        }
        _ if repeated => format!("const {{ {WRAPPER}({text}) }}"),
        _ => format!("{WRAPPER}({text})"),
    };
    edits.replace(&source.path, value.byte_range(), new);
}

/// Wraps the value of a member wherever an object of the type is made.
fn initial_values(
    sources: &Sources,
    found: &Structure,
    member: &str,
    edits: &mut Edits,
) -> Result<(), Unsure> {
    for source in sources.with_word(member, true) {
        let view = &source.views[0];
        let made = nodes(view.tree.root_node(), &|n| n.kind() == "struct_expression");
        for one in made {
            let name = one
                .child_by_field_name("name")
                .map_or("", |n| &view.text[n.byte_range()]);
            let own = name == "Self" || name.rsplit("::").next() == Some(&found.name);
            if !own {
                continue;
            }
            if source.path != found.source.path {
                unsure!("`{}` is made in {}, too", found.name, source.path.display());
            }
            if !can_be_named(&source, found.start, one.start_byte()) {
                unsure!(
                    "`{}` is made at {}, in another module, which does not see a wrapper for `{member}`",
                    found.name,
                    source.place(one.start_byte())
                );
            }
            let values = nodes(one, &|n| {
                matches!(
                    n.kind(),
                    "field_initializer" | "shorthand_field_initializer"
                )
            });
            for value in values {
                let text = &view.text[value.byte_range()];
                if text == member {
                    edits.replace(
                        &source.path,
                        value.byte_range(),
                        format!("{member}: {WRAPPER}({member})"),
                    );
                } else if let Some(inner) = value.child_by_field_name("value")
                    && text.split(':').next().map(str::trim) == Some(member)
                {
                    let old = &view.text[inner.byte_range()];
                    edits.replace(
                        &source.path,
                        inner.byte_range(),
                        format!("{WRAPPER}({old})"),
                    );
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::element;

    #[test]
    fn the_element_of_a_type_is_found() {
        for (name, wanted) in [
            ("[core::sync::atomic::AtomicU64; 64]", "AtomicU64"),
            ("[rust_mutexes::Total; 64]", "Total"),
            ("alloc::vec::Vec<app::Slot, alloc::alloc::Global>", "Slot"),
            ("Box<[Slot]>", "Slot"),
            ("Mutex<u64>", "Mutex<u64>"),
            ("app::Slot[4]", "Slot"),
        ] {
            assert_eq!(element(name), wanted, "{name}");
        }
    }
}
