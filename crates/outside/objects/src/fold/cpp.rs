//! C++ names as users write them: without parameters, return types, inline namespaces and default template
//! arguments. Pure text; must not demangle.

use super::brackets::closing;

/// Removes a C++ function's parameter list, return type and qualifiers: the report shows file and
/// line beside it. A loop and no recursion: the program's file decides how often a list is followed
/// by another name.
pub(super) fn without_parameters(name: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(open) = parameter_list(rest) {
        kept.push_str(without_return_type(&rest[..open]));
        // More than `const` after the list means a nested name, as in
        // `f()::{lambda()#1}::operator()() const`.
        let nested = matching(rest, open).and_then(|close| rest[close + 1..].strip_prefix("::"));
        let Some(nested) = nested else {
            return kept;
        };
        kept.push_str("()::");
        rest = nested;
    }
    kept.push_str(rest);
    kept
}

/// The position of the parenthesis that opens a function's parameter list.
fn parameter_list(name: &str) -> Option<usize> {
    let mut depth = 0i32;
    let bytes = name.as_bytes();
    let mut i = 0;
    while i < bytes.len() {
        match bytes[i] {
            b'<' if !operator_before(name, i) => depth += 1,
            b'>' if !operator_before(name, i) && (i == 0 || bytes[i - 1] != b'-') => depth -= 1,
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'(' if depth == 0 => {
                if name[i..].starts_with("(anonymous namespace)") {
                    i += "(anonymous namespace)".len();
                    continue;
                }
                if name[..i].ends_with("operator") && name[i..].starts_with("()") {
                    i += 2;
                    continue;
                }
                return Some(i);
            }
            _ => {}
        }
        i += 1;
    }
    None
}

fn operator_before(name: &str, at: usize) -> bool {
    name[..at]
        .trim_end_matches(['<', '>', '-', '='])
        .ends_with("operator")
}

fn matching(name: &str, open: usize) -> Option<usize> {
    let mut depth = 0;
    for (i, byte) in name.bytes().enumerate().skip(open) {
        match byte {
            b'(' => depth += 1,
            b')' => {
                depth -= 1;
                if depth == 0 {
                    return Some(i);
                }
            }
            _ => {}
        }
    }
    None
}

/// `void ns::f<int>` -> `ns::f<int>`; `operator new` keeps its blank.
fn without_return_type(head: &str) -> &str {
    let mut depth = 0;
    let mut start = 0;
    let end = head.find("operator").unwrap_or(head.len());
    for (i, byte) in head.bytes().enumerate().take(end) {
        match byte {
            b'<' | b'(' | b'{' => depth += 1,
            b'>' | b')' | b'}' => depth -= 1,
            b' ' if depth == 0 => start = i + 1,
            _ => {}
        }
    }
    &head[start..]
}

/// Shortens a C++ name or type: inline namespaces, default template arguments
/// and the long spellings of integers go.
pub(crate) fn cpp(name: &str) -> String {
    let mut name = name
        .replace(" >", ">")
        .replace("std::__1::", "std::")
        .replace("std::__cxx11::", "std::")
        .replace("std::__ndk1::", "std::")
        .replace("std::__atomic_base<", "std::atomic<");
    for (long, short) in [
        ("long long unsigned int", "unsigned long long"),
        ("long unsigned int", "unsigned long"),
        ("short unsigned int", "unsigned short"),
        ("long long int", "long long"),
        ("long int", "long"),
        ("short int", "short"),
    ] {
        name = name.replace(long, short);
    }
    // clang writes the type of a number: `std::array<long, 8UL>`.
    for (typed, plain) in [("UL>", ">"), ("UL,", ","), ("U>", ">"), ("U,", ",")] {
        name = without_suffix(&name, typed, plain);
    }
    for policy in [
        ", (__gnu_cxx::_Lock_policy)2",
        "<(__gnu_cxx::_Lock_policy)2>",
    ] {
        name = name.replace(policy, "");
    }
    for defaulted in [
        "std::allocator<",
        "std::char_traits<",
        "std::default_delete<",
        "std::less<",
        "std::hash<",
        "std::equal_to<",
    ] {
        name = without_argument(&name, defaulted);
    }
    // The type that `make_shared` allocates, and its head with the two counts.
    name = name
        .replace("std::_Sp_counted_ptr_inplace<", "std::make_shared<")
        .replace("std::_Sp_counted_base", "std::shared_ptr control block");
    name.replace("std::basic_string<char>", "std::string")
        .replace("std::basic_string_view<char>", "std::string_view")
}

/// Replaces `suffix` after a digit by `plain`.
fn without_suffix(name: &str, suffix: &str, plain: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(suffix) {
        kept.push_str(&rest[..at]);
        let number = kept.rsplit([' ', '<', ',']).next().unwrap_or("");
        let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
        kept.push_str(if digits { plain } else { suffix });
        rest = &rest[at + suffix.len()..];
    }
    kept.push_str(rest);
    kept
}

/// Removes template arguments `, KEY…>` from `name`.
fn without_argument(name: &str, key: &str) -> String {
    let mut rest = name;
    let mut kept = String::with_capacity(name.len());
    while let Some(at) = rest.find(key) {
        let before = rest[..at].trim_end();
        let end = at + closing(&rest[at..]);
        match before.strip_suffix(',') {
            Some(before) if end <= rest.len() => {
                kept.push_str(before);
                rest = rest[end..].trim_start_matches(" const");
            }
            _ => {
                kept.push_str(&rest[..at + key.len()]);
                rest = &rest[at + key.len()..];
            }
        }
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpp_types_lose_their_defaults() {
        for (raw, wanted) in [
            ("std::atomic<long int>", "std::atomic<long>"),
            (
                "std::vector<Node, std::allocator<Node> >",
                "std::vector<Node>",
            ),
            (
                "std::__cxx11::basic_string<char, std::char_traits<char>, std::allocator<char> >",
                "std::string",
            ),
            (
                "std::map<int, Node, std::less<int>, std::allocator<std::pair<const int, Node> > >",
                "std::map<int, Node>",
            ),
            ("std::allocator<Node>", "std::allocator<Node>"),
            (
                "std::array<std::array<V2U, 4UL>, 3UL>",
                "std::array<std::array<V2U, 4>, 3>",
            ),
            (
                "std::_Sp_counted_ptr_inplace<Node, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>",
                "std::make_shared<Node>",
            ),
        ] {
            assert_eq!(cpp(raw), wanted);
        }
    }

    #[test]
    fn parameters_and_return_types_go() {
        for (raw, wanted) in [
            ("void ns::f<int>(int, long)", "ns::f<int>"),
            ("bool operator<(A const&, B)", "operator<"),
            ("A::operator()(int) const", "A::operator()"),
            (
                "main::{lambda(int)#1}::operator()(int) const",
                "main::{lambda(int)#1}::operator()",
            ),
            (
                "run(int)::{lambda()#1}::operator()() const",
                "run()::{lambda()#1}::operator()",
            ),
            ("(anonymous namespace)::f(int)", "(anonymous namespace)::f"),
        ] {
            assert_eq!(without_parameters(raw), wanted);
        }
    }
}
