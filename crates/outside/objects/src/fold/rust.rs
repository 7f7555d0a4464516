//! Rust names as users write them: without traits' disambiguation, and without the standard library's
//! modules. Pure text; must not demangle.

use super::brackets::closing;

/// Shortens a demangled Rust path: `<T as Trait>::f` becomes `T::f`,
/// `{{closure}}` becomes `{closure}`.
pub(super) fn rust_path(name: &str) -> String {
    let name = name.replace("{{", "{").replace("}}", "}");
    let Some(inner) = name.strip_prefix('<') else {
        return name;
    };
    let length = closing(&name);
    if length > name.len() {
        return name;
    }
    let (inside, after) = (&inner[..length - 2], &name[length..]);
    let mut depth = 0;
    let cut = inside.char_indices().find_map(|(i, c)| {
        match c {
            '<' => depth += 1,
            '>' => depth -= 1,
            ' ' if depth == 0 && inside[i..].starts_with(" as ") => return Some(i),
            _ => {}
        }
        None
    });
    let ty = cut.map_or(inside, |i| &inside[..i]);
    format!("{}{after}", rust_path(ty))
}

/// Shortens a Rust type: paths inside the standard library lose their modules,
/// the default allocator goes, and blocks of `Arc` and `Rc` are called as users call them.
pub(crate) fn rust_type(name: &str) -> String {
    let mut name = name.replace(", alloc::alloc::Global", "");
    for (block, known) in [
        ("alloc::sync::ArcInner<", "alloc::sync::Arc<"),
        ("alloc::rc::RcInner<", "alloc::rc::Rc<"),
        ("alloc::rc::RcBox<", "alloc::rc::Rc<"),
    ] {
        name = name.replace(block, known);
    }
    for std in ["core::", "alloc::", "std::"] {
        name = last_segments(&name, std);
    }
    name
}

/// Replaces every path that starts with `root` by its last segment.
fn last_segments(name: &str, root: &str) -> String {
    let mut kept = String::with_capacity(name.len());
    let mut rest = name;
    while let Some(at) = rest.find(root) {
        let inside_word = rest[..at]
            .bytes()
            .next_back()
            .or(kept.bytes().next_back())
            .is_some_and(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b':');
        kept.push_str(&rest[..at]);
        rest = &rest[at..];
        let is_part = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
        let end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
        let path = &rest[..end];
        if inside_word {
            kept.push_str(path);
        } else {
            kept.push_str(path.rsplit("::").find(|s| !s.is_empty()).unwrap_or(path));
        }
        rest = &rest[end..];
    }
    kept.push_str(rest);
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rust_types_lose_library_paths() {
        for (raw, wanted) in [
            ("core::sync::atomic::AtomicU64", "AtomicU64"),
            (
                "alloc::vec::Vec<my::Node, alloc::alloc::Global>",
                "Vec<my::Node>",
            ),
            ("std::sync::poison::mutex::Mutex<u64>", "Mutex<u64>"),
            ("alloc::sync::ArcInner<my::Node>", "Arc<my::Node>"),
            ("alloc::rc::RcInner<[u8]>", "Rc<[u8]>"),
            ("my::core::Thing", "my::core::Thing"),
        ] {
            assert_eq!(rust_type(raw), wanted);
        }
        assert_eq!(
            rust_path("<my::T as core::fmt::Display>::fmt"),
            "my::T::fmt"
        );
        assert_eq!(rust_path("my::run::{{closure}}"), "my::run::{closure}");
    }
}
