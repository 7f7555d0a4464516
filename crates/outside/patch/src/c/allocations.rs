//! Calls of C's allocators, and what takes their place so that the block begins a line and shares
//! its last one with nobody.

mod above;
mod call;
mod wrapper;

use self::above::{ZEROED, add_helper, declare_if_old, function_at};
use self::call::{Call, Wrapper};
use self::wrapper::wrapper;
use crate::c::names::nodes;
use crate::edit::Edits;
use crate::error::{Unsure, unsure};
use crate::macros::{closing, is_word, words};
use crate::sources::{Source, Sources};
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;
use sunder_findings::{Frame, Object};
use tree_sitter::Node;

/// How a block of this finding has to be allocated.
#[derive(Clone, Copy)]
pub(crate) struct Wanted {
    pub(crate) line: u32,
    /// Whether the type itself is aligned, so that its size is whole lines, and C++'s `new` knows.
    pub(crate) type_is_aligned: bool,
}

/// Lets the object's block begin a line: at the call in the user's code that matters, which is
/// that of a wrapper's caller. Returns what else a person should know.
pub(crate) fn align(
    sources: &Sources,
    object: &Object,
    wanted: Wanted,
    edits: &mut Edits,
) -> Result<Vec<String>, Unsure> {
    if object
        .allocation
        .iter()
        .any(|f| f.function.starts_with("operator new"))
    {
        if wanted.type_is_aligned {
            return Ok(vec![
                "`new` of an aligned type needs C++17, or `-faligned-new`".into(),
            ]);
        }
        unsure!("it comes from `new`, which aligns by the type alone");
    }
    let site = site(sources, object)?;
    site.call.rewrite(sources, &site.source, wanted, edits)?;
    Ok(site.notes)
}

/// The place in the user's code that decides how a block is allocated.
pub(crate) struct AllocationSite {
    pub(crate) source: Rc<Source>,
    call: Call,
    /// What else a person should know.
    pub(crate) notes: Vec<String>,
}

impl AllocationSite {
    /// The bytes of the call.
    pub(crate) fn range(&self) -> Range<usize> {
        self.call.range.clone()
    }

    /// Makes the block `times` as large (an expression that needs no parentheses), and lets it begin a
    /// line.
    ///
    /// # Errors
    /// If the allocator is not one whose size is known.
    pub(crate) fn enlarge(
        mut self,
        sources: &Sources,
        line: u32,
        times: &str,
        edits: &mut Edits,
    ) -> Result<Vec<String>, Unsure> {
        let place = self.source.place(self.call.range.start);
        let (size, starts) = match (self.call.allocator.as_str(), &self.call.arguments[..]) {
            ("malloc" | "calloc", _) => (0, false),
            ("aligned_alloc" | "memalign", [at, _]) if is_enough(at, line) => (1, true),
            ("posix_memalign", [_, at, _]) if is_enough(at, line) => (2, true),
            (other, _) => unsure!("the block at {place} comes from `{other}`"),
        };
        if let Some(size) = self.call.arguments.get_mut(size) {
            *size = times_of(size, times);
        }
        if starts && self.call.around.is_none() {
            let arguments = self.call.arguments.join(", ");
            let call = format!("{}({arguments})", self.call.allocator);
            edits.replace(&self.source.path, self.call.range.clone(), call);
            return Ok(self.notes);
        }
        let wanted = Wanted {
            line,
            type_is_aligned: false,
        };
        self.call.rewrite(sources, &self.source, wanted, edits)?;
        Ok(self.notes)
    }
}

/// `(a + b) * times`.
pub(crate) fn times_of(text: &str, times: &str) -> String {
    if is_simple(text) {
        format!("{text} * {times}")
    } else {
        format!("({text}) * {times}")
    }
}

/// The call of an allocator of C that matters: that of the caller of all wrappers.
///
/// # Errors
/// If it is not seen in the source.
pub(crate) fn site(sources: &Sources, object: &Object) -> Result<AllocationSite, Unsure> {
    let frames: Vec<&Frame> = object
        .allocation
        .iter()
        .filter(|f| !f.is_library())
        .collect();
    if frames.is_empty() {
        unsure!("the result does not say where the block is allocated");
    }
    let mut inner: Option<Wrapper> = None;
    for (i, frame) in frames.iter().enumerate() {
        let (Some(file), Some(line)) = (&frame.file, frame.line) else {
            unsure!(
                "`{}` has no debug information: its source is not known",
                frame.function
            );
        };
        let path = sources.locate(file)?;
        let source = sources.source(&path)?;
        let call = call_at(sources, &source, line, inner.as_ref())?;
        let outer = frames.get(i + 1);
        let function = function_at(&source, call.range.start);
        if let Some(function) = function
            && outer.is_some()
            && let Some(wrapper) = wrapper(&call, function, &source)
        {
            inner = Some(wrapper);
            continue;
        }
        if let Some(holder) = &object.name
            && is_resized(&source, holder)
        {
            unsure!("`{holder}` is resized by `realloc`, which forgets the alignment");
        }
        let mut notes = Vec::new();
        if let Some(wrapper) = &inner {
            notes.push(format!(
                "what `{}` does beside allocating, such as a check for NULL, is not done there any more",
                wrapper.name
            ));
        }
        return Ok(AllocationSite {
            source,
            call,
            notes,
        });
    }
    unsure!("all functions that allocate it only pass a size on");
}

const ALLOCATORS: [&str; 7] = [
    "malloc",
    "calloc",
    "realloc",
    "aligned_alloc",
    "posix_memalign",
    "memalign",
    "valloc",
];

/// The call on this line that allocates: of an allocator, of a macro for one, or of the wrapper.
fn call_at(
    sources: &Sources,
    source: &Source,
    line: u32,
    inner: Option<&Wrapper>,
) -> Result<Call, Unsure> {
    let row = (line as usize).saturating_sub(1);
    let changed = || {
        Unsure::new(format!(
            "no allocation is at line {line} of {}: the source has changed, or a macro hides it",
            source.path.display()
        ))
    };
    for view in &source.views {
        let calls = nodes(view.tree.root_node(), &|n| {
            n.kind() == "call_expression"
                && n.start_position().row <= row
                && row <= n.end_position().row
        });
        let mut found: Vec<Call> = calls
            .into_iter()
            .filter_map(|node| read(sources, node, &view.text, inner))
            .collect();
        if found.len() > 1 {
            found.retain(|call| source.line_of(call.range.start) == row + 1);
        }
        match found.len() {
            0 => {}
            1 => return found.pop().ok_or_else(changed),
            _ => unsure!(
                "line {line} of {} has several allocations",
                source.path.display()
            ),
        }
    }
    let mut found = macros_on(sources, source, line);
    match (found.pop(), found.is_empty(), inner) {
        (Some(one), true, None) => Ok(one),
        _ => Err(changed()),
    }
}

/// Reads a call of an allocator; `None` if it is another function's.
fn read(sources: &Sources, node: Node, text: &str, inner: Option<&Wrapper>) -> Option<Call> {
    let function = node.child_by_field_name("function")?;
    let name = &text[function.byte_range()];
    let name = name
        .strip_prefix("std::")
        .or_else(|| name.strip_prefix("::"))
        .unwrap_or(name);
    let list = node.child_by_field_name("arguments")?;
    let mut cursor = list.walk();
    let arguments: Vec<String> = list
        .named_children(&mut cursor)
        .filter(|c| c.kind() != "comment")
        .map(|c| text[c.byte_range()].to_owned())
        .collect();
    if let Some(wrapper) = inner {
        if name != wrapper.name || arguments.len() != wrapper.parameters.len() {
            return None;
        }
        let values = wrapper.parameters.iter().cloned().zip(arguments).collect();
        let arguments = wrapper
            .arguments
            .iter()
            .map(|a| substituted(a, &values, true))
            .collect();
        return Some(Call {
            range: node.byte_range(),
            allocator: wrapper.allocator.clone(),
            arguments,
            around: None,
        });
    }
    if ALLOCATORS.contains(&name) {
        return Some(Call {
            range: node.byte_range(),
            allocator: name.to_owned(),
            arguments,
            around: None,
        });
    }
    let mut call = opened(sources, name, arguments)?;
    call.range = node.byte_range();
    Some(call)
}

/// The call of an allocator that a macro with these arguments stands for.
fn opened(sources: &Sources, name: &str, arguments: Vec<String>) -> Option<Call> {
    let [definition] = sources.macros().definitions(name) else {
        return None;
    };
    let parameters = definition.parameters.clone()?;
    if parameters.len() != arguments.len() || definition.body.contains('#') {
        return None;
    }
    let values = parameters.into_iter().zip(arguments).collect();
    let body = substituted(&definition.body, &values, false);
    let mut calls = words(&body).filter(|(_, word)| ALLOCATORS.contains(word));
    let (at, allocator) = calls.next()?;
    if calls.next().is_some() {
        return None;
    }
    let open = at + allocator.len();
    let gap = body[open..].len() - body[open..].trim_start().len();
    let end = open + gap + closing(&body[open + gap..])?;
    Some(Call {
        range: 0..0,
        allocator: allocator.to_owned(),
        arguments: split(&body[open + gap + 1..end - 1]),
        around: Some((body[..at].to_owned(), body[end..].to_owned())),
    })
}

/// Calls of macros on a line that have a type among their arguments, which is no C.
fn macros_on(sources: &Sources, source: &Source, line: u32) -> Vec<Call> {
    let (Some(start), Some(text)) = (source.line_start(line), source.line(line)) else {
        return Vec::new();
    };
    let calls = words(text).filter_map(|(at, name)| {
        let open = start + at + name.len();
        let end = open + closing(&source.text[open..])?;
        let mut call = opened(sources, name, split(&source.text[open + 1..end - 1]))?;
        call.range = start + at..end;
        Some(call)
    });
    calls.collect()
}

/// The text with values in place of names.
fn substituted(text: &str, values: &BTreeMap<String, String>, parenthesized: bool) -> String {
    let mut out = String::new();
    let mut from = 0;
    for (at, word) in words(text) {
        if let Some(value) = values.get(word) {
            out.push_str(&text[from..at]);
            if parenthesized && text != word && !is_simple(value) {
                out.push_str(&format!("({value})"));
            } else {
                out.push_str(value);
            }
            from = at + word.len();
        }
    }
    out.push_str(&text[from..]);
    out
}

/// Splits arguments at commas outside of parentheses.
fn split(text: &str) -> Vec<String> {
    let mut depth = 0;
    let mut all = vec![String::new()];
    for c in text.chars() {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        match all.last_mut() {
            Some(last) if c != ',' || depth > 0 => last.push(c),
            _ => all.push(String::new()),
        }
    }
    all.iter().map(|a| a.trim().to_owned()).collect()
}

/// Whether it needs no parentheses as an operand.
fn is_simple(text: &str) -> bool {
    text.chars().all(is_word) || text.starts_with('(') && closing(text) == Some(text.len())
}

/// Whether the block that `holder` points to is passed to `realloc`.
fn is_resized(source: &Source, holder: &str) -> bool {
    let root = source.views[0].tree.root_node();
    nodes(root, &|n| n.kind() == "call_expression")
        .into_iter()
        .any(|call| {
            let told = &source.text[call.byte_range()];
            let mut names = words(told).map(|(_, word)| word);
            matches!(names.next(), Some("realloc" | "reallocarray")) && names.any(|w| w == holder)
        })
}

impl Call {
    /// Puts an aligned allocation into its place.
    fn rewrite(
        &self,
        sources: &Sources,
        source: &Source,
        wanted: Wanted,
        edits: &mut Edits,
    ) -> Result<(), Unsure> {
        let line = wanted.line;
        let place = source.place(self.range.start);
        let new = match (self.allocator.as_str(), &self.arguments[..]) {
            ("malloc", [size]) => {
                let size = if wanted.type_is_aligned && size.contains("sizeof") {
                    size.clone()
                } else {
                    rounded(size, line)
                };
                declare_if_old(sources, source, self.range.start, edits);
                format!("aligned_alloc({line}, {size})")
            }
            ("calloc", [count, size]) => {
                add_helper(sources, source, self.range.start, line, edits);
                format!("{ZEROED}({count}, {size})")
            }
            ("aligned_alloc" | "memalign", [alignment, _]) if is_enough(alignment, line) => {
                if wanted.type_is_aligned {
                    return Ok(());
                }
                unsure!("the block at {place} begins a line already");
            }
            ("posix_memalign", [_, alignment, _])
                if is_enough(alignment, line) && wanted.type_is_aligned =>
            {
                return Ok(());
            }
            ("valloc", _) if wanted.type_is_aligned => return Ok(()),
            (other, _) => {
                unsure!("the block at {place} comes from `{other}`, which has no aligned form")
            }
        };
        let whole = match &self.around {
            Some((before, after)) => format!("{before}{new}{after}"),
            None => new,
        };
        edits.replace(&source.path, self.range.clone(), whole);
        Ok(())
    }
}

/// Whether an alignment is at least a line: a number, or a name for something that is meant so.
fn is_enough(alignment: &str, line: u32) -> bool {
    alignment.trim().parse::<u32>().map_or(true, |n| n >= line)
}

/// `size` as whole lines, since `aligned_alloc` takes nothing else and the rest of the last line
/// must stay empty.
fn rounded(size: &str, line: u32) -> String {
    if let Ok(number) = size.trim().parse::<u64>() {
        return number
            .div_ceil(u64::from(line))
            .saturating_mul(u64::from(line))
            .to_string();
    }
    format!("({size} + {}) / {line} * {line}", line - 1)
}

/// Also aligns a call that `heap` found by the type that it allocates.
pub(crate) fn align_call(
    sources: &Sources,
    source: &Source,
    node: Node,
    wanted: Wanted,
    edits: &mut Edits,
) -> Result<bool, Unsure> {
    match read(sources, node, &source.text, None) {
        Some(call) => call.rewrite(sources, source, wanted, edits).map(|()| true),
        None => Ok(false),
    }
}
