//! Variables of C and C++: where they are declared, and how to align them.

use crate::c::names::{declarators, declared, nodes};
use crate::c::spelling::{Spelling, attribute};
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::sources::{Language, Source, Sources};
use std::ops::Range;
use std::rc::Rc;
use sunder_findings::Object;

/// A declaration of a variable.
pub(crate) struct Variable {
    pub(crate) source: Rc<Source>,
    pub(crate) name: String,
    pub(crate) declaration: Range<usize>,
    /// Its type, without the declarator.
    pub(crate) type_range: Range<usize>,
    /// Behind `static`, `extern` and the like.
    pub(crate) behind_storage: usize,
    /// Its own declarator without the initial value.
    pub(crate) declarator: Range<usize>,
    /// The initial value.
    pub(crate) value: Option<Range<usize>>,
    /// How many variables the declaration declares.
    pub(crate) of: usize,
    /// Whether it is seen in this file only.
    pub(crate) is_local: bool,
    /// The function in which it is declared.
    pub(crate) function: Option<Range<usize>>,
}

/// The declaration of a finding's object.
///
/// # Errors
/// If it is not where the result says: the source has changed since.
pub(crate) fn find(sources: &Sources, object: &Object) -> Result<Variable, Unsure> {
    let Some(whole) = object.name.as_deref() else {
        unsure!("the variable has no name in the result");
    };
    let name = whole.rsplit("::").next().unwrap_or(whole);
    let Some(declared_at) = &object.declared else {
        unsure!("the result does not say where `{name}` is declared");
    };
    let path = sources.locate(&declared_at.file)?;
    let source = sources.source(&path)?;
    let line = declared_at.line.unwrap_or(0);
    let text = source.line(line).unwrap_or_default();
    if !crate::macros::words(text).any(|(_, word)| word == name) {
        unsure!(
            "line {line} of {} does not name `{name}`: the source has changed since the result was made",
            path.display()
        );
    }
    let row = (line as usize).saturating_sub(1);
    for view in &source.views {
        let all = nodes(view.tree.root_node(), &|n| {
            matches!(n.kind(), "declaration" | "field_declaration")
        });
        for declaration in all {
            let own = declarators(declaration);
            for one in &own {
                let Some(node) = declared(*one) else { continue };
                if &view.text[node.byte_range()] != name || node.start_position().row != row {
                    continue;
                }
                if declaration.has_error() {
                    continue;
                }
                let plain = match one.kind() {
                    "init_declarator" => one.child_by_field_name("declarator").unwrap_or(*one),
                    _ => *one,
                };
                let value = match one.kind() {
                    "init_declarator" => one.child_by_field_name("value"),
                    _ => declaration.child_by_field_name("default_value"),
                };
                let Some(of_type) = declaration.child_by_field_name("type") else {
                    continue;
                };
                let mut cursor = declaration.walk();
                let storage: Vec<_> = declaration
                    .children(&mut cursor)
                    .filter(|c| c.kind() == "storage_class_specifier")
                    .collect();
                let function =
                    crate::c::names::around(declaration, &|n| n.kind() == "function_definition");
                return Ok(Variable {
                    name: name.to_owned(),
                    declaration: declaration.byte_range(),
                    type_range: of_type.byte_range(),
                    behind_storage: storage
                        .last()
                        .map_or(declaration.start_byte(), |s| s.end_byte()),
                    declarator: plain.byte_range(),
                    value: value.map(|v| v.byte_range()),
                    of: own.len(),
                    is_local: function.is_some()
                        || storage
                            .iter()
                            .any(|s| &view.text[s.byte_range()] == "static"),
                    function: function.map(|f| f.byte_range()),
                    source: Rc::clone(&source),
                });
            }
        }
    }
    unsure!(
        "the declaration of `{name}` at {}:{line} can't be read",
        path.display()
    )
}

impl Variable {
    /// Lets the variable begin a line.
    pub(crate) fn align(&self, spelling: Spelling, line: u32, edits: &mut Edits) {
        let file = &self.source.path;
        if self.of > 1 {
            edits.insert(file, self.declarator.end, format!(" {}", attribute(line)));
            return;
        }
        let written = spelling.before(self.source.language, line);
        let keyword_of_cpp = spelling == Spelling::Keyword && self.source.language == Language::Cpp;
        if self.behind_storage == self.declaration.start || keyword_of_cpp {
            // In C++, only what stands first aligns the variable and not its type.
            edits.insert(file, self.declaration.start, format!("{written} "));
        } else {
            edits.insert(file, self.behind_storage, format!(" {written}"));
        }
    }
}
