//! Names of types as debug information writes them, and names in syntax trees.

use tree_sitter::Node;

/// The type of one element, as it is called in its definition: without qualifiers, dimensions,
/// containers and namespaces. `None` for pointers, functions and numbers.
pub(crate) fn element_type(name: &str) -> Option<String> {
    let mut name = name.trim();
    loop {
        let before = name;
        for prefix in [
            "const ",
            "volatile ",
            "struct ",
            "class ",
            "union ",
            "enum ",
        ] {
            name = name.strip_prefix(prefix).unwrap_or(name).trim();
        }
        name = name.strip_suffix(" const").unwrap_or(name);
        if let Some(open) = name.rfind('[')
            && name.ends_with(']')
            && open > 0
        {
            name = name[..open].trim();
        }
        for container in [
            "std::array<",
            "std::vector<",
            "std::deque<",
            "std::unique_ptr<",
            // Blocks with something of the library's before the value, which are as aligned as that.
            "std::make_shared<",
            "std::_List_node<",
            "std::_Rb_tree_node<",
            "std::__detail::_Hash_node<",
        ] {
            if let Some(inside) = name.strip_prefix(container) {
                name = first_argument(inside).trim();
            }
        }
        if name == before {
            break;
        }
    }
    if name.is_empty() || name.ends_with(['*', '&', ')']) || is_foreign(name) {
        return None;
    }
    let without_arguments = name.split('<').next().unwrap_or(name);
    let leaf = without_arguments
        .rsplit("::")
        .next()
        .unwrap_or(without_arguments);
    Some(leaf.to_owned())
}

/// The first argument of a template, whose list begins the text.
fn first_argument(text: &str) -> &str {
    let mut depth = 0;
    for (at, c) in text.char_indices() {
        match c {
            '<' | '(' => depth += 1,
            '>' | ')' if depth > 0 => depth -= 1,
            ',' | '>' if depth == 0 => return &text[..at],
            _ => {}
        }
    }
    text
}

/// Whether it is a number or a library's type, whose alignment is not the user's to choose.
pub(crate) fn is_foreign(name: &str) -> bool {
    const NUMBERS: [&str; 13] = [
        "char", "short", "int", "long", "float", "double", "bool", "_Bool", "unsigned", "signed",
        "void", "_Atomic", "__int128",
    ];
    const LIBRARIES: [&str; 6] = [
        "std::",
        "__gnu_cxx::",
        "boost::",
        "pthread_",
        "atomic_",
        "_Atomic(",
    ];
    let first = name.split([' ', '<', '[']).next().unwrap_or(name);
    NUMBERS.contains(&first)
        || LIBRARIES.iter().any(|l| name.starts_with(l))
        || first.ends_with("_t") && is_number(first)
}

fn is_number(name: &str) -> bool {
    const OTHERS: [&str; 6] = [
        "size_t",
        "ssize_t",
        "ptrdiff_t",
        "time_t",
        "off_t",
        "wchar_t",
    ];
    ["int", "uint", "intptr", "uintptr"].iter().any(|p| {
        name.strip_prefix(p)
            .is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit() || c == '_'))
    }) || OTHERS.contains(&name)
}

/// The name that a declarator declares, with its node: `*a[3]` declares `a`. `None` for functions.
pub(crate) fn declared<'t>(declarator: Node<'t>) -> Option<Node<'t>> {
    match declarator.kind() {
        "identifier" | "field_identifier" | "type_identifier" => Some(declarator),
        "qualified_identifier" => declared(declarator.child_by_field_name("name")?),
        "array_declarator" | "init_declarator" | "pointer_declarator" | "attributed_declarator" => {
            let inner = declarator.child_by_field_name("declarator");
            declared(inner.or_else(|| declarator.named_child(0))?)
        }
        "parenthesized_declarator" | "reference_declarator" => {
            declared(declarator.named_child(declarator.named_child_count().checked_sub(1)? as u32)?)
        }
        // `int (*f)(void)`: a variable that points to a function.
        "function_declarator" => {
            let inner = declarator.child_by_field_name("declarator")?;
            (inner.kind() == "parenthesized_declarator").then(|| declared(inner))?
        }
        _ => None,
    }
}

/// Whether the declarator declares a pointer.
pub(crate) fn is_pointer(declarator: Node) -> bool {
    let mut node = Some(declarator);
    while let Some(one) = node {
        if matches!(
            one.kind(),
            "pointer_declarator" | "reference_declarator" | "function_declarator"
        ) {
            return true;
        }
        node = one.child_by_field_name("declarator");
    }
    false
}

/// All declarators of a declaration.
pub(crate) fn declarators<'t>(declaration: Node<'t>) -> Vec<Node<'t>> {
    let mut cursor = declaration.walk();
    declaration
        .children_by_field_name("declarator", &mut cursor)
        .collect()
}

/// All nodes below `root`, in the order of the text, for which `wanted` holds.
pub(crate) fn nodes<'t>(root: Node<'t>, wanted: &dyn Fn(Node<'t>) -> bool) -> Vec<Node<'t>> {
    let mut found = Vec::new();
    let mut cursor = root.walk();
    loop {
        let node = cursor.node();
        if wanted(node) {
            found.push(node);
        }
        if cursor.goto_first_child() || cursor.goto_next_sibling() {
            continue;
        }
        loop {
            if !cursor.goto_parent() {
                return found;
            }
            if cursor.goto_next_sibling() {
                break;
            }
        }
    }
}

/// The innermost node around `node`, itself included, for which `wanted` holds.
pub(crate) fn around<'t>(node: Node<'t>, wanted: &dyn Fn(Node<'t>) -> bool) -> Option<Node<'t>> {
    let mut at = Some(node);
    while let Some(one) = at {
        if wanted(one) {
            return Some(one);
        }
        at = one.parent();
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_element_of_a_type_is_found() {
        for (name, wanted) in [
            ("struct thread_stats[64]", Some("thread_stats")),
            ("lreg_args", Some("lreg_args")),
            ("std::array<app::counter, 64ul>", Some("counter")),
            (
                "std::vector<Slot<int>, std::allocator<Slot<int> > >",
                Some("Slot"),
            ),
            ("const struct a [2][3]", Some("a")),
            ("std::make_shared<Settings const>", Some("Settings")),
            ("std::_List_node<app::Slot>", Some("Slot")),
            ("std::array<std::atomic<long>, 64ul>", None),
            ("uint64_t[8]", None),
            ("_Atomic uint64_t", None),
            ("struct node *", None),
            ("unsigned long", None),
            ("pthread_mutex_t[4]", None),
            ("point_t[4]", Some("point_t")),
        ] {
            assert_eq!(element_type(name).as_deref(), wanted, "{name}");
        }
    }
}
