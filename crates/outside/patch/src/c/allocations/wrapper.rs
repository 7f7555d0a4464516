//! Functions that only hand memory on: the call of an allocator with their own parameters, and what is
//! done when it fails. Their callers can call the allocator in their place. A function that does more with
//! the block is none: a change of its callers would leave that out.

use super::call::{Call, Wrapper};
use crate::c::names::{around, declared, nodes};
use crate::macros::words;
use crate::sources::Source;
use tree_sitter::Node;

/// The function as a wrapper of this call: its sizes are its parameters alone, and it returns what the
/// call returned, untouched or filled with zeros.
pub(super) fn wrapper(call: &Call, function: Node, source: &Source) -> Option<Wrapper> {
    let text = &source.text;
    let declarator = function.child_by_field_name("declarator")?;
    let list = nodes(declarator, &|n| n.kind() == "function_declarator")
        .into_iter()
        .next()?;
    let name = list.child_by_field_name("declarator")?;
    let parameters = list.child_by_field_name("parameters")?;
    let mut cursor = parameters.walk();
    let names: Vec<String> = parameters
        .named_children(&mut cursor)
        .filter_map(|p| p.child_by_field_name("declarator"))
        .filter_map(declared)
        .map(|n| text[n.byte_range()].to_owned())
        .collect();
    if call.around.is_some() || names.is_empty() {
        return None;
    }
    let known = |word: &str| {
        names.iter().any(|n| n == word) || word.starts_with(|c: char| c.is_ascii_digit())
    };
    let only_parameters = call
        .arguments
        .iter()
        .all(|a| words(a).all(|(_, w)| known(w)));
    let any_parameter = call
        .arguments
        .iter()
        .any(|a| words(a).any(|(_, w)| names.iter().any(|n| n == w)));
    if !only_parameters || !any_parameter {
        return None;
    }
    let body = Body {
        text,
        node: function.child_by_field_name("body")?,
        call,
    };
    let is_cleared = body.only_hands_on()?;
    let mut allocator = call.allocator.clone();
    let mut arguments = call.arguments.clone();
    if allocator == "malloc" && is_cleared {
        allocator = "calloc".to_owned();
        arguments.insert(0, "1".to_owned());
    }
    Some(Wrapper {
        name: text[name.byte_range()].to_owned(),
        parameters: names,
        allocator,
        arguments,
    })
}

/// The body of a function that may only hand on what `call` allocates.
struct Body<'a> {
    text: &'a str,
    node: Node<'a>,
    call: &'a Call,
}

impl<'a> Body<'a> {
    fn told(&self, node: Node) -> &'a str {
        self.text[node.byte_range()].trim()
    }

    /// Whether the block is filled with zeros before it is handed on. `None` if the function does anything
    /// else with it, or anything else at all where the call has not failed.
    fn only_hands_on(&self) -> Option<bool> {
        let holder = self.holder()?;
        let returned = nodes(self.node, &|n| n.kind() == "return_statement");
        let is_block = |r: &Node| {
            let value = r.named_child(0).map(|value| self.told(value));
            value.is_some_and(|value| match holder {
                Some(holder) => [holder, "NULL", "0", "nullptr"].contains(&value),
                None => r.byte_range().contains(&self.call.range.start),
            })
        };
        if returned.is_empty() || !returned.iter().all(is_block) {
            return None;
        }
        let mut is_cleared = false;
        let acting = nodes(self.node, &|n| {
            matches!(
                n.kind(),
                "call_expression" | "assignment_expression" | "update_expression" | "asm_statement"
            )
        });
        for one in acting {
            let makes = one.byte_range().contains(&self.call.range.start);
            if makes || holder.is_some_and(|holder| self.is_in_failure(one, holder)) {
                continue;
            }
            let clears = holder.is_some_and(|holder| self.clears(one, holder));
            if !clears {
                return None;
            }
            is_cleared = true;
        }
        Some(is_cleared)
    }

    /// The variable that takes the call's result; `Some(None)` if it is returned at once, and `None` if
    /// anything else becomes of it.
    fn holder(&self) -> Option<Option<&'a str>> {
        let range = &self.call.range;
        let mut node = self
            .node
            .descendant_for_byte_range(range.start, range.end)?;
        while let Some(outer) = node.parent() {
            match outer.kind() {
                "cast_expression" | "parenthesized_expression" => node = outer,
                "return_statement" => return Some(None),
                "init_declarator" => {
                    let name = declared(outer.child_by_field_name("declarator")?)?;
                    return Some(Some(self.told(name)));
                }
                "assignment_expression" => {
                    let left = outer.child_by_field_name("left")?;
                    return (left.kind() == "identifier").then(|| Some(self.told(left)));
                }
                _ => return None,
            }
        }
        None
    }

    /// Whether `node` is only reached where the call has failed.
    fn is_in_failure(&self, node: Node, holder: &str) -> bool {
        let fails = |n: Node| {
            let test = n.child_by_field_name("condition").map(|c| self.told(c));
            let test: Option<String> = test.map(|t| t.split_whitespace().collect());
            let ways = ["(!H)", "(H==NULL)", "(NULL==H)", "(H==0)", "(H==nullptr)"];
            let fails = ways.iter().any(|w| test == Some(w.replace('H', holder)));
            let then = n.child_by_field_name("consequence");
            fails && then.is_some_and(|then| then.byte_range().contains(&node.start_byte()))
        };
        around(node, &|n| n.kind() == "if_statement" && fails(n)).is_some()
    }

    /// Whether `node` fills the block with zeros.
    fn clears(&self, node: Node, holder: &str) -> bool {
        let function = node.child_by_field_name("function");
        let arguments = node.child_by_field_name("arguments");
        let (Some(function), Some(arguments)) = (function, arguments) else {
            return false;
        };
        let argument = |n| arguments.named_child(n).map(|one| self.told(one));
        // As much as was allocated.
        let whole = self.call.arguments.last().map(|size| size.trim());
        ["memset", "std::memset"].contains(&self.told(function))
            && argument(0) == Some(holder)
            && argument(1) == Some("0")
            && argument(2) == whole
    }
}
