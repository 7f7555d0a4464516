//! A struct of Rust as its source defines it.

use crate::c::names::nodes;
use crate::error::{Unsure, unsure};
use crate::sources::{Source, Sources};
use std::rc::Rc;

/// A definition of a struct.
pub(super) struct Structure {
    pub source: Rc<Source>,
    pub name: String,
    /// Where the item begins, before `pub`, behind its other attributes.
    pub start: usize,
    pub attributes: String,
    /// Name, type and position of the type, for each member with a name.
    pub members: Vec<(String, std::ops::Range<usize>)>,
}

/// The definition of the struct `name`.
///
/// # Errors
/// If there is none of yours, or several.
pub(super) fn structure(sources: &Sources, name: &str) -> Result<Structure, Unsure> {
    let bare = name.split('<').next().unwrap_or(name);
    let mut found = Vec::new();
    for source in sources.with_word(bare, true) {
        let view = &source.views[0];
        let items = nodes(view.tree.root_node(), &|n| {
            matches!(n.kind(), "struct_item" | "union_item" | "enum_item")
        });
        for item in items {
            let own = item
                .child_by_field_name("name")
                .map(|n| &view.text[n.byte_range()]);
            if own != Some(bare) || item.has_error() {
                continue;
            }
            if item.kind() != "struct_item" {
                unsure!(
                    "`{bare}` at {} is no struct",
                    source.place(item.start_byte())
                );
            }
            let mut attributes = String::new();
            let mut before = item.prev_sibling();
            while let Some(one) = before.filter(|b| b.kind() == "attribute_item") {
                attributes.push_str(&view.text[one.byte_range()]);
                before = one.prev_sibling();
            }
            let fields = nodes(item, &|n| n.kind() == "field_declaration");
            let mut members: Vec<_> = fields
                .into_iter()
                .filter_map(|field| {
                    let name = field.child_by_field_name("name")?;
                    let of = field.child_by_field_name("type")?;
                    Some((view.text[name.byte_range()].to_owned(), of.byte_range()))
                })
                .collect();
            for list in nodes(item, &|n| n.kind() == "ordered_field_declaration_list") {
                let mut cursor = list.walk();
                let types = list.children_by_field_name("type", &mut cursor).enumerate();
                members.extend(types.map(|(i, of)| (i.to_string(), of.byte_range())));
            }
            found.push(Structure {
                name: bare.to_owned(),
                start: item.start_byte(),
                attributes,
                members,
                source: Rc::clone(&source),
            });
        }
    }
    match (found.pop(), found.is_empty()) {
        (Some(one), true) => Ok(one),
        (Some(one), false) => unsure!(
            "`{bare}` is defined at {} and elsewhere",
            one.source.place(one.start)
        ),
        (None, _) => unsure!("`{bare}` is not a type of yours"),
    }
}
