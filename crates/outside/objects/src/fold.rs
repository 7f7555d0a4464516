//! Readable names: demangled, without hashes, inline namespaces, default template arguments and
//! trait disambiguation. Pure text; called for every function and type name that leaves the crate.

mod brackets;
mod cpp;
mod library;
mod rust;

pub(crate) use cpp::cpp;
pub(crate) use library::{is_library_file, is_library_function, is_library_name};
pub(crate) use rust::rust_type;

use cpp::without_parameters;
use rust::rust_path;
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

#[cfg(test)]
mod tests {
    use super::*;

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
}
