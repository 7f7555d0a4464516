//! Readable names: demangled, without hashes, inline namespaces, default template arguments and
//! trait disambiguation. Pure text; called for every function and type name that leaves the crate.

use std::borrow::Cow;
use std::fmt;

/// The longest name in bytes, before and after demangling: the rest is cut off. The longest names
/// of real programs, those of C++ templates, mostly have less than 1,000.
pub(crate) const LONGEST_NAME: usize = 4096;

/// The first [`LONGEST_NAME`] bytes of `name`, or some fewer: characters stay whole.
pub(crate) fn shortened(name: &str) -> &str {
    let mut end = name.len().min(LONGEST_NAME);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

/// Text that is written up to [`LONGEST_NAME`] bytes. A mangled name of some bytes can stand for
/// gigabytes, because it may refer to its own parts.
struct Short {
    text: String,
    full: bool,
}

impl Short {
    /// What `write` writes; `None` if it fails before the text is full.
    fn of(write: impl FnOnce(&mut Self) -> fmt::Result) -> Option<String> {
        let mut short = Self {
            text: String::new(),
            full: false,
        };
        let done = write(&mut short).is_ok() || short.full;
        done.then_some(short.text)
    }
}

impl fmt::Write for Short {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        let free = LONGEST_NAME - self.text.len();
        if more.len() <= free {
            self.text.push_str(more);
            return Ok(());
        }
        self.full = true;
        let fitting = more.char_indices().map(|(at, _)| at);
        let end = fitting.take_while(|at| *at <= free).last().unwrap_or(0);
        self.text.push_str(&more[..end]);
        Err(fmt::Error)
    }
}

/// The readable form of a function's name from a symbol table or debug information.
pub(crate) fn function(raw: &str) -> String {
    let raw = shortened(raw);
    // Go's methods, as `main.(*Ring).Produce`, have no parameters to leave out.
    if raw.contains(".(*") {
        return raw.to_owned();
    }
    let name = demangle(raw);
    if raw.starts_with("_R") || is_rust(raw) {
        rust_path(&name)
    } else {
        cpp(&without_parameters(&name))
    }
}

/// The readable form of a variable's name from a symbol table.
pub(crate) fn variable(raw: &str) -> String {
    let name = function(raw);
    // gcc numbers the static variables of functions: `count.0`.
    match name.rsplit_once('.') {
        Some((name, digits)) if digits.bytes().all(|b| b.is_ascii_digit()) => name.to_owned(),
        _ => name,
    }
}

/// Whether a source file belongs to a language's library.
pub(crate) fn is_library_file(file: &str) -> bool {
    const FOLDERS: [&str; 4] = ["/usr/include/", "/usr/lib/gcc/", "/usr/lib/llvm", "/rustc/"];
    // As Clang names the headers of GCC's library: `/usr/bin/../lib/gcc/…/../../../../include/c++/12`.
    let file = without_detours(file);
    FOLDERS.iter().any(|folder| file.starts_with(folder))
        || file.contains("/rustlib/src/")
        || file.contains("/libstdc++-v3/")
}

/// The path without `..`, as far as its text tells: links are not looked up, since the file may be another
/// machine's.
fn without_detours(path: &str) -> Cow<'_, str> {
    if !path.contains("/../") {
        return path.into();
    }
    let mut parts: Vec<&str> = Vec::new();
    for part in path.split('/') {
        if part == ".." && parts.last().is_some_and(|last| !matches!(*last, "" | "..")) {
            parts.pop();
        } else {
            parts.push(part);
        }
    }
    parts.join("/").into()
}

/// Whether a function, by its readable name and file, belongs to a language's library or to an
/// allocator.
pub(crate) fn is_library_function(name: &str, file: Option<&str>) -> bool {
    const ROOTS: [&str; 10] = [
        "operator new",
        "std::",
        "__gnu_cxx::",
        "core::",
        "alloc::",
        "<core::",
        "<alloc::",
        "__rust",
        "__rdl_",
        "__rg_",
    ];
    ROOTS.iter().any(|root| name.starts_with(root)) || file.is_some_and(is_library_file)
}

/// Whether a record belongs to a library, so that users do not know its fields.
pub(crate) fn is_library_name(name: &str) -> bool {
    const ROOTS: [&str; 9] = [
        "std::",
        "__gnu_cxx::",
        "core::",
        "alloc::",
        "crossbeam_utils::",
        "parking_lot::",
        "parking_lot_core::",
        "lock_api::",
        "once_cell::",
    ];
    ROOTS.iter().any(|root| name.starts_with(root))
        || matches!(name, "pthread_mutex_t" | "_IO_FILE" | "__pthread_mutex_s")
}

/// Demangles C++ and Rust names; others stay as they are.
fn demangle(raw: &str) -> Cow<'_, str> {
    // Versioned dynamic symbols (`fork@@GLIBC_2.2.5`) are C names.
    let raw = raw.split('@').next().unwrap_or(raw);
    let base = strip_clone_suffix(raw);
    if let Ok(name) = rustc_demangle::try_demangle(base)
        && let Some(name) = Short::of(|out| fmt::write(out, format_args!("{name:#}")))
    {
        return name.into();
    }
    if base.starts_with("_Z")
        && let Ok(symbol) = cpp_demangle::Symbol::new(base)
    {
        let options = cpp_demangle::DemangleOptions::default();
        if let Some(name) = Short::of(|out| symbol.structured_demangle(out, &options)) {
            // An empty pack of arguments leaves its comma there.
            return name.replace(", >", ">").into();
        }
    }
    if let Some(name) = plain_names(base) {
        return name.into();
    }
    base.into()
}

/// The qualified name at the start of a mangled C++ name whose rest can't be demangled (Itanium C++
/// ABI, section 5.1.2), without template arguments.
fn plain_names(mangled: &str) -> Option<String> {
    let mut rest = mangled.strip_prefix("_Z")?;
    rest = rest.strip_prefix('N').unwrap_or(rest);
    rest = rest.trim_start_matches(['r', 'V', 'K']);
    let mut parts = Vec::new();
    if let Some(after) = rest.strip_prefix("St") {
        parts.push("std");
        rest = after;
    }
    let mut named = false;
    while rest.starts_with(|c: char| c.is_ascii_digit()) {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let length: usize = rest[..digits].parse().ok()?;
        let end = digits.checked_add(length)?;
        parts.push(rest.get(digits..end)?);
        rest = rest.get(end..)?;
        named = true;
    }
    named.then(|| parts.join("::"))
}

/// gcc's names of parts and copies of functions: `f.part.0`, `f.constprop.1`.
fn strip_clone_suffix(name: &str) -> &str {
    const SUFFIXES: [&str; 6] = [
        ".part.",
        ".constprop.",
        ".isra.",
        ".cold",
        ".lto_priv.",
        ".llvm.",
    ];
    let cut = SUFFIXES.iter().filter_map(|s| name.find(s)).min();
    cut.map_or(name, |at| &name[..at])
}

fn is_rust(raw: &str) -> bool {
    rustc_demangle::try_demangle(strip_clone_suffix(raw)).is_ok()
}

/// Removes a C++ function's parameter list, return type and qualifiers: the report shows file and
/// line beside it. A loop and no recursion: the program's file decides how often a list is followed
/// by another name.
fn without_parameters(name: &str) -> String {
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

/// The length of the text up to the `>` that closes its first `<`, inclusive.
fn closing(text: &str) -> usize {
    let mut depth = 0;
    for (i, byte) in text.bytes().enumerate() {
        match byte {
            b'<' => depth += 1,
            b'>' => {
                depth -= 1;
                if depth == 0 {
                    return i + 1;
                }
            }
            _ => {}
        }
    }
    text.len() + 1
}

/// Shortens a demangled Rust path: `<T as Trait>::f` becomes `T::f`,
/// `{{closure}}` becomes `{closure}`.
fn rust_path(name: &str) -> String {
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
    fn the_files_of_a_library_are_known_however_they_are_reached() {
        for (file, librarys) in [
            ("/usr/include/c++/12/bits/stl_vector.h", true),
            // As Clang 14 writes it on Debian.
            (
                "/usr/bin/../lib/gcc/x86_64-linux-gnu/12/../../../../include/c++/12/bits/stl_vector.h",
                true,
            ),
            ("/home/user/project/src/../include/pool.h", false),
            ("/usr/include/../../home/user/pool.h", false),
            ("../usr/include/pool.h", false),
        ] {
            assert_eq!(is_library_file(file), librarys, "{file}");
        }
    }

    #[test]
    fn functions_read_like_source() {
        for (raw, wanted) in [
            ("main", "main"),
            ("worker.part.0", "worker"),
            ("_ZN2ns5Stats3hitEv", "ns::Stats::hit"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int>::push_back",
            ),
            // As `c++filt` has it, whose text ends in `std::make_unique<Conn>()`.
            (
                "_ZSt11make_uniqueI4ConnJEENSt8__detail9_MakeUniqIT_E15__single_objectEDpOT0_",
                "std::make_unique<Conn>",
            ),
            ("_Znwm", "operator new"),
            ("main.(*Ring).Produce.func1", "main.(*Ring).Produce.func1"),
            ("sync/atomic.(*Int64).Add", "sync/atomic.(*Int64).Add"),
            // The rest after the name is not a valid mangling.
            ("_ZSt11make_sharedI?broken", "std::make_shared"),
            ("_ZN3app4Pool4growI?broken", "app::Pool::grow"),
            ("_ZN3app99Pool", "_ZN3app99Pool"),
            (
                "_ZN4core3ptr13drop_in_place17h0123456789abcdefE",
                "core::ptr::drop_in_place",
            ),
        ] {
            assert_eq!(function(raw), wanted, "{raw}");
        }
    }

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

    #[test]
    fn names_within_names_need_no_stack() {
        let name = "a()::".repeat(100_000);
        assert_eq!(without_parameters(&name), name);
        assert_eq!(function(&name), name[..LONGEST_NAME]);
    }

    #[test]
    fn long_names_are_cut_between_characters() {
        let name = "ä".repeat(LONGEST_NAME);
        assert_eq!(function(&name), "ä".repeat(LONGEST_NAME / 2));
        let odd = format!("x{name}");
        assert_eq!(shortened(&odd).len(), LONGEST_NAME - 1);
        assert_eq!(shortened("short"), "short");
    }

    /// Each argument of the function is a pair of the one before it twice: 2^40 names in all.
    #[test]
    fn a_mangled_name_does_not_grow_without_end() {
        let mut mangled = String::from("_Z1fSt4pairIiiE");
        for number in 0..40 {
            let last = seq_id(number);
            mangled.push_str(&format!("St4pairIS{last}_S{last}_E"));
        }
        assert!(function(&mangled).len() <= LONGEST_NAME);
        assert!(demangle(&mangled).starts_with("f(std::pair<int, int>, std::pair<std::pair<"));
    }

    /// The number of the substitution for the type that the test's arguments end with.
    fn seq_id(number: u32) -> String {
        // Each argument adds itself and, the first, also `std::pair`.
        let digits = |n: u32| char::from_digit(n, 36).map(|c| c.to_ascii_uppercase());
        match number {
            0 => "0".to_owned(),
            n => [n / 36, n % 36]
                .into_iter()
                .skip(usize::from(n < 36))
                .filter_map(digits)
                .collect(),
        }
    }

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
