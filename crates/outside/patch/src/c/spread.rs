//! Arrays and blocks whose elements are numbers or a library's: the elements keep their type and lie
//! far enough apart, so that each index is multiplied. Done only if every use of every name for the
//! array is seen, and is one whose meaning stays. Called by `carry`; it must not change a function's
//! parameters or a type.

mod begin;
mod uses;

use crate::c::names::{around, declared, nodes};
use crate::c::spelling::Spelling;
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::macros::{is_word, words};
use crate::sources::{Source, Sources};
use begin::{Name, Storage, begin, declarations_of, named, node_at};
use std::ops::Range;
use std::rc::Rc;
use sunder_findings::Object;
use tree_sitter::Node;
use uses::{Holder, Use, use_of};

/// A larger array is not spread: it would cost more in memory than it saves in transfers.
const LARGEST: u64 = 64 << 10;

/// What was done.
pub(crate) struct Spread {
    /// The array's name.
    pub(crate) name: String,
    /// Distance of two elements, in elements.
    pub(crate) apart: u64,
    /// What else a person should know.
    pub(crate) notes: Vec<String>,
}

/// Puts the elements of `object` on lines of their own.
///
/// # Errors
/// If a use is not seen or not understood.
pub(crate) fn spread(
    sources: &Sources,
    object: &Object,
    spelling: Spelling,
    line: u32,
    edits: &mut Edits,
) -> Result<Spread, Unsure> {
    let size = object.element_size.or_else(|| size_by_count(object));
    let Some(size) = size.filter(|&size| size > 0) else {
        unsure!("the size of its elements is not known");
    };
    let apart = apart(size, u64::from(line));
    if object.size.unwrap_or(0).saturating_mul(apart) > LARGEST {
        unsure!("with elements on lines of their own, it would take more than {LARGEST} bytes");
    }
    let mut changed = Edits::default();
    let begun = begin(sources, object, spelling, line, &mut changed)?;
    let constant = format!("{}_apart", begun.first.text);
    let source = Rc::clone(&begun.source);
    if words(&source.text).any(|(_, word)| word == constant) {
        unsure!("{} has a `{constant}` already", source.path.display());
    }
    let mut spreading = Spreading {
        sources,
        source: &source,
        constant: &constant,
        names: vec![begun.first.clone()],
        passed: Vec::new(),
        edits: changed,
        first_use: begun.at,
    };
    let notes = spreading.enlarge(begun.storage, line)?;
    spreading.follow()?;
    spreading.check_passed()?;
    let (mut changed, first_use) = (spreading.edits, spreading.first_use);
    changed.insert(
        &source.path,
        top_level(&source, first_use),
        format!(
            "/* Elements of `{}` lie so many places apart: each has a cache line of its own. */\n\
             enum {{ {constant} = {apart} }};\n\n",
            begun.first.text
        ),
    );
    edits.merge(&changed)?;
    Ok(Spread {
        name: begun.first.text,
        apart,
        notes,
    })
}

/// The size of an element of `long[8]`, by that of the whole.
fn size_by_count(object: &Object) -> Option<u64> {
    let (_, count) = object.type_name.as_deref()?.rsplit_once('[')?;
    let count: u64 = count.strip_suffix(']')?.parse().ok()?;
    object.size?.checked_div(count)
}

/// The distance of elements of `size` bytes, in elements, at which no two meet on a line.
fn apart(size: u64, line: u64) -> u64 {
    if line.is_multiple_of(size) {
        // Each element lies within one line.
        line / size
    } else {
        // Wherever the array starts, a whole line lies between two elements.
        (line - 1).div_ceil(size) + 1
    }
}

/// The beginning of the line of the item at the top of the file that has the byte, or of the comment
/// above it.
fn top_level(source: &Source, at: usize) -> usize {
    let root = source.views[0].tree.root_node();
    let node = root.descendant_for_byte_range(at, at + 1);
    let mut item = node.and_then(|n| around(n, &|n| n.parent() == Some(root)));
    while let Some(before) = item.and_then(|i| i.prev_sibling()).filter(|before| {
        before.kind() == "comment"
            && item.is_some_and(|i| before.end_position().row + 1 >= i.start_position().row)
    }) {
        item = Some(before);
    }
    let start = item.map_or(0, |i| i.start_byte());
    source.text[..start].rfind('\n').map_or(0, |n| n + 1)
}

/// An array that is passed to a function.
struct Passed {
    function: String,
    position: usize,
    place: String,
}

struct Spreading<'a> {
    sources: &'a Sources,
    source: &'a Rc<Source>,
    constant: &'a str,
    names: Vec<Name>,
    passed: Vec<Passed>,
    edits: Edits,
    first_use: usize,
}

impl Spreading<'_> {
    fn enlarge(&mut self, storage: Storage, line: u32) -> Result<Vec<String>, Unsure> {
        match storage {
            Storage::Count(range) => {
                self.multiply(range);
                Ok(Vec::new())
            }
            Storage::Block(site) => {
                site.enlarge(self.sources, line, self.constant, &mut self.edits)
            }
        }
    }

    /// Multiplies an expression.
    fn multiply(&mut self, range: Range<usize>) {
        let file = &self.source.path;
        let text = &self.source.text[range.clone()];
        self.first_use = self.first_use.min(range.start);
        if text.chars().all(is_word) {
            self.edits
                .insert(file, range.end, format!(" * {}", self.constant));
        } else {
            self.edits.insert(file, range.start, "(");
            self.edits
                .insert(file, range.end, format!(") * {}", self.constant));
        }
    }

    /// Looks at every use of every name; finds more names meanwhile.
    fn follow(&mut self) -> Result<(), Unsure> {
        let mut next = 0;
        while let Some(name) = self.names.get(next).cloned() {
            next += 1;
            let macros = self.sources.macros();
            if let Some(definition) = macros.mentioning(&name.text).first() {
                unsure!("the macro `{definition}` uses `{}`", name.text);
            }
            let view = &self.source.views[0];
            let all = nodes(view.tree.root_node(), &|n| {
                n.kind() == "identifier"
                    && name.scope.contains(&n.start_byte())
                    && n.byte_range() != name.declared
                    && view.text[n.byte_range()] == *name.text
            });
            let again = declarations_of(self.source, &name.text);
            for one in all {
                if again.iter().any(|n| n.byte_range() == one.byte_range()) {
                    let place = self.source.place(one.start_byte());
                    unsure!("another `{}` is declared at {place}", name.text);
                }
                self.one(one, &name)?;
            }
            self.initial(&name)?;
        }
        Ok(())
    }

    /// The value with which a pointer is declared: the array, or nothing.
    fn initial(&self, name: &Name) -> Result<(), Unsure> {
        let node = node_at(self.source, &name.declared, &["identifier"]);
        let init = node.and_then(|n| around(n, &|n| n.kind() == "init_declarator"));
        let value = init.and_then(|i| i.child_by_field_name("value"));
        match value.filter(|_| name.holder == Holder::Pointer) {
            Some(value) if !self.may_hold(value) => unsure!(
                "`{}` at {} begins with something else",
                name.text,
                self.source.place(name.declared.start)
            ),
            _ => Ok(()),
        }
    }

    /// Whether a pointer with this value points to the array, or nowhere.
    fn may_hold(&self, value: Node) -> bool {
        let text = &self.source.text[value.byte_range()];
        // The allocation was found by its place, and its own change replaces it.
        matches!(text, "NULL" | "0" | "nullptr")
            || self.names.iter().any(|n| n.text == text)
            || self.edits.touches(&self.source.path, value.start_byte())
            || value.kind() == "new_expression"
            || value
                .child_by_field_name("value")
                .is_some_and(|inner| self.may_hold(inner))
    }

    fn one(&mut self, node: Node, name: &Name) -> Result<(), Unsure> {
        let source = Rc::clone(self.source);
        let place = source.place(node.start_byte());
        match use_of(node, &source.text, name.holder) {
            Use::Harmless => {}
            Use::Number(range) => self.multiply(range),
            Use::Count(range) => {
                self.edits.insert(&source.path, range.start, "(");
                self.edits
                    .insert(&source.path, range.end, format!(" / {})", self.constant));
            }
            Use::Set(value) => {
                if !self.may_hold(value) {
                    unsure!("`{}` is set to something else at {place}", name.text);
                }
            }
            Use::Copied(other) => {
                let more = named(self.sources, &source, other, Holder::Pointer)?;
                if !self.names.contains(&more) {
                    self.names.push(more);
                }
            }
            Use::Passed { function, position } => {
                self.parameter(&function, position, &place)?;
                self.passed.push(Passed {
                    function,
                    position,
                    place,
                });
            }
            Use::Unknown(why) => unsure!("`{}` {why} at {place}", name.text),
        }
        Ok(())
    }

    /// Follows the array into a function of the same file.
    fn parameter(&mut self, function: &str, position: usize, place: &str) -> Result<(), Unsure> {
        let source = Rc::clone(self.source);
        let view = &source.views[0];
        let all = nodes(view.tree.root_node(), &|n| {
            n.kind() == "function_definition"
        });
        let own: Vec<(Node, Node)> = all
            .into_iter()
            .filter_map(|f| {
                let declarator = f.child_by_field_name("declarator")?;
                let list = nodes(declarator, &|n| n.kind() == "function_declarator");
                let list = list.into_iter().next()?;
                let name = list.child_by_field_name("declarator")?;
                (&view.text[name.byte_range()] == function).then_some((f, list))
            })
            .collect();
        let is_static = |f: &Node| view.text[f.byte_range()].trim_start().starts_with("static");
        let elsewhere = self
            .sources
            .with_word(function, false)
            .iter()
            .any(|other| other.path != source.path);
        let [(definition, list)] = own[..] else {
            unsure!("it is passed to `{function}` at {place}, which is not seen");
        };
        if elsewhere && !is_static(&definition) {
            unsure!("it is passed to `{function}` at {place}, which other files use, too");
        }
        let parameter = list
            .child_by_field_name("parameters")
            .and_then(|p| p.named_child(u32::try_from(position).ok()?))
            .and_then(|p| p.child_by_field_name("declarator"))
            .filter(|d| matches!(d.kind(), "pointer_declarator" | "array_declarator"))
            .and_then(declared);
        let Some(parameter) = parameter else {
            unsure!("it is passed to `{function}` at {place}, which takes no plain pointer");
        };
        let more = Name {
            text: view.text[parameter.byte_range()].to_owned(),
            scope: definition.byte_range(),
            declared: parameter.byte_range(),
            holder: Holder::Pointer,
        };
        if !self.names.contains(&more) {
            self.names.push(more);
        }
        Ok(())
    }

    /// Functions that get the array must not get another one elsewhere.
    fn check_passed(&self) -> Result<(), Unsure> {
        let view = &self.source.views[0];
        for passed in &self.passed {
            let calls = nodes(view.tree.root_node(), &|n| {
                n.kind() == "call_expression"
                    && n.child_by_field_name("function")
                        .is_some_and(|f| view.text[f.byte_range()] == passed.function)
            });
            let used = nodes(view.tree.root_node(), &|n| {
                n.kind() == "identifier" && view.text[n.byte_range()] == passed.function
            });
            let position = u32::try_from(passed.position).unwrap_or(u32::MAX);
            let all_ours = calls.iter().all(|call| {
                let list = call.child_by_field_name("arguments");
                list.and_then(|l| l.named_child(position)).is_some_and(|a| {
                    let text = &view.text[a.byte_range()];
                    let names = |n: &Name| n.text == text && n.scope.contains(&a.start_byte());
                    self.names.iter().any(names)
                })
            });
            // Its declaration and definition, and the calls: no pointer to it.
            let plain = used.iter().all(|n| {
                n.parent()
                    .is_some_and(|p| matches!(p.kind(), "call_expression" | "function_declarator"))
            });
            if !all_ours || !plain {
                unsure!(
                    "`{}`, to which it is passed at {}, may also get other arrays",
                    passed.function,
                    passed.place
                );
            }
        }
        Ok(())
    }
}
