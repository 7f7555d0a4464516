//! What a use of an array's name means for the distance of its elements. Only reads the tree.

use std::ops::Range;
use tree_sitter::Node;

/// What the names of the array mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// The array itself, or its parameter.
    Array,
    /// A pointer to its first element.
    Pointer,
    /// A `std::vector`.
    Vector,
}

/// One use.
pub(super) enum Use<'t> {
    /// It means the same with any distance.
    Harmless,
    /// A number of elements or bytes from the array's start, to be multiplied.
    Number(Range<usize>),
    /// A number of elements that the program asks for, to be divided.
    Count(Range<usize>),
    /// The name gets this value.
    Set(Node<'t>),
    /// Another name gets its value.
    Copied(Node<'t>),
    /// A function of the program gets it.
    Passed { function: String, position: usize },
    /// Not known; in words that follow the name.
    Unknown(&'static str),
}

/// The use of a name at `node`.
pub(super) fn use_of<'t>(node: Node<'t>, text: &str, holder: Holder) -> Use<'t> {
    const WHOLE: Use = Use::Unknown("is used as a whole");
    let Some(parent) = node.parent() else {
        return WHOLE;
    };
    let is = |field: &str| parent.child_by_field_name(field) == Some(node);
    match parent.kind() {
        "subscript_expression" if is("argument") => subscript(parent, text),
        "field_expression" if holder == Holder::Vector => member(parent, text),
        _ if holder == Holder::Vector => match parent.kind() {
            "lambda_capture_specifier" => Use::Harmless,
            "pointer_expression" | "reference_declarator" => {
                around_capture(parent).unwrap_or(WHOLE)
            }
            _ => WHOLE,
        },
        "binary_expression" => match operator(parent, text) {
            "+" if is("left") => element_at(parent, text),
            "==" | "!=" | "&&" | "||" => Use::Harmless,
            _ => WHOLE,
        },
        "unary_expression" if operator(parent, text) == "!" => Use::Harmless,
        "pointer_expression" if operator(parent, text) == "*" => Use::Harmless,
        "parenthesized_expression" | "condition_clause" => {
            match parent.parent().map(|p| p.kind()) {
                Some("if_statement" | "while_statement") => Use::Harmless,
                _ => WHOLE,
            }
        }
        // `sizeof *name`, and of the pointer itself.
        "sizeof_expression" if holder == Holder::Pointer => Use::Harmless,
        // All of the array is set; the name of what is set is looked at by itself.
        "sizeof_expression" if is_size_to_set(parent, text) => Use::Harmless,
        "sizeof_expression" => Use::Unknown("is measured"),
        "delete_expression" | "lambda_capture_specifier" => Use::Harmless,
        "init_declarator" if is("value") => {
            let name = parent.child_by_field_name("declarator");
            let name = name.filter(|d| d.kind() == "pointer_declarator");
            match name.and_then(crate::c::names::declared) {
                Some(name) => Use::Copied(name),
                None => WHOLE,
            }
        }
        "assignment_expression" if operator(parent, text) != "=" => Use::Unknown("is moved along"),
        "assignment_expression" if is("left") => {
            let right = parent.child_by_field_name("right");
            right.map_or(WHOLE, Use::Set)
        }
        "assignment_expression" => match parent.child_by_field_name("left") {
            Some(left) if left.kind() == "identifier" => Use::Copied(left),
            _ => Use::Unknown("is kept in something else"),
        },
        "argument_list" => argument(node, parent, text, holder),
        _ => WHOLE,
    }
}

/// The last argument of `memset`.
fn is_size_to_set(size: Node, text: &str) -> bool {
    let call = size
        .parent()
        .filter(|list| list.kind() == "argument_list")
        .and_then(|list| list.parent());
    call.and_then(|c| c.child_by_field_name("function"))
        .is_some_and(|f| matches!(&text[f.byte_range()], "memset" | "std::memset"))
}

/// By reference or by value in the list of a lambda.
fn around_capture<'t>(node: Node) -> Option<Use<'t>> {
    let parent = node.parent()?;
    (parent.kind() == "lambda_capture_specifier").then_some(Use::Harmless)
}

fn operator<'s>(node: Node, text: &'s str) -> &'s str {
    let operator = node.child_by_field_name("operator");
    operator.map_or("", |o| &text[o.byte_range()])
}

/// `name[index]`.
fn subscript<'t>(element: Node<'t>, text: &str) -> Use<'t> {
    let index = element.child_by_field_name("index").or_else(|| {
        let list = element.child_by_field_name("indices")?;
        (list.named_child_count() == 1).then(|| list.named_child(0))?
    });
    let Some(index) = index else {
        return Use::Unknown("is used as a whole");
    };
    let taken = element
        .parent()
        .is_some_and(|p| p.kind() == "pointer_expression" && operator(p, text) == "&");
    // With a variable index it is one thread's element.
    if taken && text[index.byte_range()].parse::<u64>().is_ok() {
        return Use::Unknown(
            "has the address of an element taken, which may lead to the next one,",
        );
    }
    Use::Number(index.byte_range())
}

/// `name + number`: an element's place, unless more is added to it or it may lead to the next element.
fn element_at<'t>(sum: Node<'t>, text: &str) -> Use<'t> {
    let Some(number) = sum.child_by_field_name("right") else {
        return Use::Unknown("is used as a whole");
    };
    let mut around = sum.parent();
    while let Some(outer) = around.filter(|o| o.kind() == "parenthesized_expression") {
        around = outer.parent();
    }
    let read = |outer: Node| outer.kind() == "pointer_expression" && operator(outer, text) == "*";
    let kept = |outer: Node| {
        matches!(
            outer.kind(),
            "argument_list" | "init_declarator" | "assignment_expression" | "initializer_list"
        )
    };
    let constant = text[number.byte_range()].parse::<u64>().is_ok();
    match around {
        Some(outer) if read(outer) || kept(outer) && !constant => Use::Number(number.byte_range()),
        _ => Use::Unknown("is the start of a sum that is not understood"),
    }
}

/// `name.size()` and the like.
fn member<'t>(access: Node<'t>, text: &str) -> Use<'t> {
    let field = access.child_by_field_name("field");
    let called = access.parent().filter(|p| p.kind() == "call_expression");
    match (field.map(|f| &text[f.byte_range()]), called) {
        (Some("size"), Some(call)) => Use::Count(call.byte_range()),
        (Some("empty"), Some(_)) => Use::Harmless,
        _ => Use::Unknown("is used as a whole"),
    }
}

fn argument<'t>(node: Node<'t>, list: Node<'t>, text: &str, holder: Holder) -> Use<'t> {
    let call = list.parent().filter(|c| c.kind() == "call_expression");
    let Some(function) = call.and_then(|c| c.child_by_field_name("function")) else {
        return Use::Unknown("is used as a whole");
    };
    let function = &text[function.byte_range()];
    let mut cursor = list.walk();
    let arguments: Vec<Node> = list
        .named_children(&mut cursor)
        .filter(|a| a.kind() != "comment")
        .collect();
    let position = arguments.iter().position(|a| *a == node).unwrap_or(0);
    match (function, position) {
        ("free" | "std::free", 0) => Use::Harmless,
        ("memset" | "std::memset", 0) => {
            let Some(size) = arguments.get(2) else {
                return Use::Unknown("is used as a whole");
            };
            let told: String = text[size.byte_range()].split_whitespace().collect();
            let name = &text[node.byte_range()];
            let of_all = told == format!("sizeof{name}") || told == format!("sizeof({name})");
            match (of_all, holder) {
                // The array has grown already.
                (true, Holder::Array) => Use::Harmless,
                (true, _) => Use::Unknown("is measured"),
                (false, _) => Use::Number(size.byte_range()),
            }
        }
        _ => Use::Passed {
            function: function.to_owned(),
            position,
        },
    }
}
