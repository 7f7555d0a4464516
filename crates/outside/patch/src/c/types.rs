//! Definitions of structs and classes in C and C++: where they are, and how to align them or one
//! of their members.

use crate::c::names::{declarators, declared, is_pointer, nodes};
use crate::c::spelling::{Spelling, attribute};
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::macros::words;
use crate::sources::{Source, Sources, View};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;
use tree_sitter::Node;

/// The most names that are followed, each of which stands for the next.
const MOST_ALIASES: u32 = 8;

/// A member of a type.
#[derive(Clone, Debug)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Its whole declaration, which may declare others too.
    pub(crate) declaration: Range<usize>,
    /// Where its own declarator ends, before an initial value.
    pub(crate) declarator_end: usize,
    /// How many members the declaration declares.
    pub(crate) of: usize,
    pub(crate) is_bit_field: bool,
    /// The type as it is written, if the member lies in the record as a whole; empty for pointers.
    pub(crate) type_text: String,
    /// A record that is defined right there, without a name of its own.
    pub(crate) is_anonymous_record: bool,
}

/// A definition of a type.
pub(crate) struct TypeDefinition {
    pub(crate) source: Rc<Source>,
    /// As the user calls it.
    pub(crate) name: String,
    /// Behind `struct` or `class`.
    pub(crate) behind_keyword: usize,
    pub(crate) is_union: bool,
    /// From the keyword to the end of the declaration that contains it.
    pub(crate) range: Range<usize>,
    pub(crate) members: Vec<Member>,
}

/// The definition of the type with this name that has all `members`, as seen from the file `near`.
pub(crate) fn find(
    sources: &Sources,
    near: Option<&Path>,
    name: &str,
    members: &BTreeSet<String>,
) -> Result<TypeDefinition, Unsure> {
    find_through(sources, near, name, members, MOST_ALIASES)
}

/// As [`find`], through at most so many names that stand for another.
fn find_through(
    sources: &Sources,
    near: Option<&Path>,
    name: &str,
    members: &BTreeSet<String>,
    aliases: u32,
) -> Result<TypeDefinition, Unsure> {
    let mut found = Vec::new();
    let mut without = None;
    let mut stands_for = BTreeMap::new();
    for source in sources.with_word(name, false) {
        let own = definitions(&source, name);
        if own.is_empty() {
            let of = meant_by(&source, name);
            stands_for.extend(of.map(|of| (of, source.path.clone())));
        }
        for definition in own {
            if has_all(&definition, members) {
                found.push(definition);
            } else {
                without = Some(definition.source.place(definition.range.start));
            }
        }
    }
    if found.len() > 1
        && let Some(near) = near
    {
        let reachable = includes(sources, near);
        let mut nearer: Vec<_> = (0..found.len())
            .filter(|&i| found[i].source.path == near)
            .collect();
        if nearer.is_empty() {
            nearer = (0..found.len())
                .filter(|&i| reachable.contains(found[i].source.path.as_path()))
                .collect();
        }
        if let [one] = nearer[..] {
            return Ok(found.swap_remove(one));
        }
    }
    // The file in which one name stands for another sees what that one is.
    let mut meant = stands_for.iter();
    if let (true, Some((of, file)), None) = (found.is_empty(), meant.next(), meant.next())
        && let Some(left) = aliases.checked_sub(1)
    {
        return find_through(sources, Some(file), of, members, left);
    }
    match (found.pop(), without) {
        (Some(one), _) if found.is_empty() => Ok(one),
        (Some(one), _) => unsure!(
            "`{name}` is defined at {} and at {}",
            found[0].source.place(found[0].range.start),
            one.source.place(one.range.start)
        ),
        (None, Some(place)) => unsure!(
            "`{name}` at {place} does not have the members that were seen: the source has changed, or another is meant"
        ),
        (None, None) => match unreadable(sources, name) {
            Some(place) => unsure!("the definition of `{name}` at {place} can't be read"),
            None => unsure!(
                "no definition of `{name}` was found below {}",
                sources.root().display()
            ),
        },
    }
}

/// Where a type of this name seems to be defined in a way that is not understood, such as with a macro
/// before the name.
fn unreadable(sources: &Sources, name: &str) -> Option<String> {
    let defines = |line: &str| {
        // Up to the body or the base classes.
        let head = line.split('{').next().unwrap_or(line);
        let head = head.split(" :").next().unwrap_or(head).trim_end();
        let mut back = words(head).collect::<Vec<_>>().into_iter().rev();
        let is_last = back.next().is_some_and(|(_, word)| word == name);
        let keyword = back.any(|(_, word)| ["struct", "class", "union"].contains(&word));
        is_last && keyword && head.ends_with(name)
    };
    sources.with_word(name, false).iter().find_map(|source| {
        let mut at = 0;
        source.text.split_inclusive('\n').find_map(|line| {
            let start = at;
            at += line.len();
            defines(line).then(|| source.place(start))
        })
    })
}

/// Members of members count, since a finding names them too.
fn has_all(definition: &TypeDefinition, members: &BTreeSet<String>) -> bool {
    let own = &definition.source.text[definition.range.clone()];
    // Only the first step of a path must be a member here.
    members.is_empty()
        || members
            .iter()
            .any(|m| definition.members.iter().any(|own| own.name == *m))
        || definition.members.is_empty() && own.contains('{')
}

/// All files that `from` includes by quoted names, also through others, and itself.
pub(crate) fn includes(sources: &Sources, from: &Path) -> BTreeSet<std::path::PathBuf> {
    let mut seen = BTreeSet::new();
    let mut next = vec![from.to_owned()];
    while let Some(file) = next.pop() {
        let Ok(text) = sources.text(&file) else {
            continue;
        };
        if !seen.insert(file.clone()) {
            continue;
        }
        for line in text.lines() {
            let Some(rest) = line.trim_start().strip_prefix('#') else {
                continue;
            };
            let Some(rest) = rest.trim_start().strip_prefix("include") else {
                continue;
            };
            let name = rest.trim().trim_matches(['"', '<', '>']);
            let ends = |path: &&std::path::PathBuf| path.ends_with(name);
            next.extend(sources.files().iter().filter(ends).cloned());
        }
    }
    seen
}

/// The definitions of this name in one file; each once, from the view in which it makes sense.
fn definitions(source: &Rc<Source>, name: &str) -> Vec<TypeDefinition> {
    for view in &source.views {
        let found: Vec<TypeDefinition> = nodes(view.tree.root_node(), &is_record)
            .into_iter()
            .filter(|record| called(*record, &view.text) == Some(name.to_owned()))
            .filter(|record| !record.has_error())
            .map(|record| read(source, view, record, name))
            .collect();
        if !found.is_empty() {
            return found;
        }
    }
    Vec::new()
}

/// The type for which a name stands in one file: `typedef struct a b;` and `using b = a;` lead from `b`
/// to `a`.
fn meant_by(source: &Source, name: &str) -> Option<String> {
    let view = &source.views[0];
    let aliases = nodes(view.tree.root_node(), &|n| {
        matches!(n.kind(), "type_definition" | "alias_declaration")
    });
    for alias in aliases {
        let names: Vec<&str> = match alias.kind() {
            "type_definition" => declarators(alias)
                .into_iter()
                .filter(|d| d.kind() == "type_identifier")
                .map(|d| &view.text[d.byte_range()])
                .collect(),
            _ => alias
                .child_by_field_name("name")
                .map(|n| &view.text[n.byte_range()])
                .into_iter()
                .collect(),
        };
        let of = alias.child_by_field_name("type");
        let of = of.and_then(|t| crate::c::names::element_type(&view.text[t.byte_range()]));
        if names.contains(&name)
            && let Some(of) = of
            && of != name
        {
            return Some(of);
        }
    }
    None
}

fn is_record(node: Node) -> bool {
    matches!(
        node.kind(),
        "struct_specifier" | "class_specifier" | "union_specifier"
    ) && node.child_by_field_name("body").is_some()
}

/// The tag of a record, or the name that a `typedef` around it gives.
fn called(record: Node, text: &str) -> Option<String> {
    if let Some(name) = record.child_by_field_name("name") {
        let name = match name.kind() {
            "template_type" => name.child_by_field_name("name")?,
            _ => name,
        };
        let whole = &text[name.byte_range()];
        return Some(whole.rsplit("::").next().unwrap_or(whole).to_owned());
    }
    let parent = record.parent()?;
    if parent.kind() != "type_definition" {
        return None;
    }
    let name = declarators(parent)
        .into_iter()
        .find(|d| d.kind() == "type_identifier")?;
    Some(text[name.byte_range()].to_owned())
}

fn read(source: &Rc<Source>, view: &View, record: Node, name: &str) -> TypeDefinition {
    let keyword = record
        .child(0)
        .map_or(record.start_byte(), |k| k.end_byte());
    let around = record.parent().filter(|p| {
        matches!(
            p.kind(),
            "type_definition" | "declaration" | "field_declaration" | "template_declaration"
        )
    });
    let range = around.map_or(record.byte_range(), |p| p.byte_range());
    let body = record.child_by_field_name("body");
    TypeDefinition {
        source: Rc::clone(source),
        name: name.to_owned(),
        behind_keyword: keyword,
        is_union: record.kind() == "union_specifier",
        range,
        members: body.map_or_else(Vec::new, |body| members(body, &view.text)),
    }
}

fn members(body: Node, text: &str) -> Vec<Member> {
    let mut all = Vec::new();
    let mut cursor = body.walk();
    for child in body.named_children(&mut cursor) {
        match child.kind() {
            "field_declaration" | "declaration" => all.extend(members_of(child, text)),
            kind if kind.starts_with("preproc_") => all.extend(members(child, text)),
            _ => {}
        }
    }
    all
}

fn members_of(declaration: Node, text: &str) -> Vec<Member> {
    let type_node = declaration.child_by_field_name("type");
    let type_text = type_node.map_or("", |t| &text[t.byte_range()]);
    let mut cursor = declaration.walk();
    let is_static = declaration
        .children(&mut cursor)
        .any(|c| c.kind() == "storage_class_specifier" && &text[c.byte_range()] == "static");
    if is_static {
        return Vec::new();
    }
    let is_bit_field = nodes(declaration, &|n| n.kind() == "bitfield_clause")
        .iter()
        .any(|n| n.parent() == Some(declaration));
    let all = declarators(declaration);
    let of = all.len();
    all.into_iter()
        .filter_map(|declarator| {
            let name = declared(declarator)?;
            Some(Member {
                name: text[name.byte_range()].to_owned(),
                declaration: declaration.byte_range(),
                declarator_end: declarator.end_byte(),
                of,
                is_bit_field,
                type_text: if is_pointer(declarator) {
                    String::new()
                } else {
                    type_text.to_owned()
                },
                is_anonymous_record: type_node.is_some_and(is_record),
            })
        })
        .collect()
}

impl TypeDefinition {
    /// `struct counter`, as a sentence has it.
    pub(crate) fn place(&self) -> String {
        self.source.place(self.range.start)
    }

    pub(crate) fn text(&self) -> &str {
        &self.source.text[self.range.clone()]
    }

    /// Aligns the type, so that each object of it has lines of its own.
    pub(crate) fn align(&self, spelling: Spelling, line: u32, edits: &mut Edits) {
        let written = spelling.of_type(self.source.language, line);
        edits.insert(
            &self.source.path,
            self.behind_keyword,
            format!(" {written}"),
        );
    }

    /// Whether another member lies before this one, and a line can begin between them.
    pub(crate) fn can_be_parted_before(&self, member: &str) -> bool {
        let mut behind_first = self.members.iter().skip(1);
        behind_first.any(|m| m.name == member && !m.is_bit_field)
    }

    /// The member behind this one before which a line can begin.
    pub(crate) fn behind(&self, member: &str) -> Option<&Member> {
        let at = self.members.iter().position(|m| m.name == member)?;
        self.members.get(at + 1..)?.iter().find(|m| !m.is_bit_field)
    }

    /// Lets a member begin a line.
    pub(crate) fn break_before(
        &self,
        member: &str,
        spelling: Spelling,
        line: u32,
        edits: &mut Edits,
    ) -> Result<(), Unsure> {
        let Some(member) = self.members.iter().find(|m| m.name == member) else {
            unsure!(
                "`{}` at {} has no member `{member}`",
                self.name,
                self.place()
            );
        };
        if member.is_bit_field {
            unsure!(
                "`{}.{}` is a bit field, which can't be aligned",
                self.name,
                member.name
            );
        }
        let file = &self.source.path;
        if member.of == 1 {
            let written = spelling.before(self.source.language, line);
            edits.insert(file, member.declaration.start, format!("{written} "));
        } else {
            edits.insert(file, member.declarator_end, format!(" {}", attribute(line)));
        }
        Ok(())
    }
}
