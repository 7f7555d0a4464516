//! The source language of the data, and how alignment is written in that language.

use sunder_findings::Finding;

/// A source language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// C.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// No file's name tells.
    Unknown,
}

impl Language {
    /// The language of the files that declare, allocate or touch the object, the nearest to the
    /// data first.
    pub(crate) fn of(finding: &Finding) -> Self {
        let object = &finding.object;
        let declared = object.declared.iter().map(|d| d.file.as_str());
        let allocated = object
            .allocation
            .iter()
            .filter(|f| !f.is_library())
            .filter_map(|f| f.file.as_deref());
        let touched = finding.sites.iter().filter_map(|s| s.file.as_deref());
        let named = declared
            .chain(allocated)
            .chain(touched)
            .find_map(Self::of_file);
        let found = named.unwrap_or(Self::Unknown);
        let cpp_names = finding.sites.iter().any(|s| s.function.contains("::"))
            || object
                .type_name
                .as_deref()
                .is_some_and(|t| t.contains("std::"));
        match found {
            // A header alone means C, unless names have colons.
            Self::Unknown if cpp_names && Self::any_header(finding) => Self::Cpp,
            Self::Unknown if Self::any_header(finding) => Self::C,
            other => other,
        }
    }

    fn of_file(path: &str) -> Option<Self> {
        let (_, extension) = path.rsplit_once('.')?;
        match extension {
            "c" => Some(Self::C),
            "cc" | "cpp" | "cxx" | "c++" | "C" | "hpp" | "hh" | "hxx" | "h++" | "ipp" | "tcc" => {
                Some(Self::Cpp)
            }
            "rs" => Some(Self::Rust),
            _ => None,
        }
    }

    fn any_header(finding: &Finding) -> bool {
        let declared = finding.object.declared.iter().map(|d| d.file.as_str());
        let touched = finding.sites.iter().filter_map(|s| s.file.as_deref());
        declared.chain(touched).any(|f| f.ends_with(".h"))
    }

    /// The text that aligns the user's own type `name`.
    pub(crate) fn align_type(self, name: &str, line: u32) -> String {
        match self {
            // `_Alignas` is not allowed on a type, only on a member or object.
            Self::C => format!(
                "put `_Alignas({line})` on the first member of `{name}` \
                 (or `__attribute__((aligned({line})))` on the type)"
            ),
            Self::Cpp => format!(
                "declare `struct alignas({line}) {}`{}",
                bare(name),
                interference(line)
            ),
            Self::Rust => format!("put `#[repr(align({line}))]` on `{name}`"),
            Self::Unknown => format!("align `{name}` to {line} bytes"),
        }
    }

    /// The text that gives elements of a type that is not the user's own lines of their own.
    pub(crate) fn wrap_type(self, name: &str, line: u32) -> String {
        match self {
            Self::C => {
                format!("make the element `struct padded {{ _Alignas({line}) {name} value; }}`")
            }
            Self::Cpp => format!(
                "make the element `struct alignas({line}) Padded {{ {name} value; }}`{}",
                interference(line)
            ),
            Self::Rust => format!(
                "make the element `CachePadded<{name}>` (crossbeam-utils), or a struct of it \
                 with `#[repr(align({line}))]`"
            ),
            Self::Unknown => format!("pad each `{name}` to {line} bytes"),
        }
    }

    /// The text before a field, or in its place, that makes it start a line.
    pub(crate) fn before_field(self, field: &str, line: u32) -> String {
        match self {
            Self::C => format!("put `_Alignas({line})` before `{field}`"),
            Self::Cpp => format!("put `alignas({line})` before `{field}`"),
            Self::Rust => format!(
                "wrap `{field}` in `CachePadded` (crossbeam-utils) or in a struct with \
                 `#[repr(align({line}))]`"
            ),
            Self::Unknown => format!("let `{field}` start a new line of {line} bytes"),
        }
    }

    /// The text that aligns the variable `name`.
    pub(crate) fn align_variable(self, name: &str, line: u32) -> String {
        match self {
            Self::C => format!("declare `{name}` with `_Alignas({line})`"),
            Self::Cpp => format!("declare `{name}` with `alignas({line})`"),
            Self::Rust => format!(
                "wrap `{name}` in `CachePadded` (crossbeam-utils) or in a struct with \
                 `#[repr(align({line}))]`"
            ),
            Self::Unknown => format!("align `{name}` to {line} bytes"),
        }
    }

    /// The call that allocates `size` bytes at a line's start.
    pub(crate) fn allocate(self, line: u32, size: Option<u64>) -> String {
        let size = size.map_or_else(|| "size rounded up".to_owned(), |s| s.to_string());
        match self {
            Self::Rust => {
                format!(
                    "`Layout::from_size_align({size}, {line})`, or a type with `#[repr(align({line}))]`"
                )
            }
            Self::Cpp => {
                format!(
                    "`std::aligned_alloc({line}, {size})`, or `new` of a type with `alignas({line})`"
                )
            }
            Self::C | Self::Unknown => format!("`aligned_alloc({line}, {size})`"),
        }
    }
}

/// The standard library's constant for the line size, for 64 bytes: that is its value with gcc
/// and clang.
fn interference(line: u32) -> &'static str {
    if line == 64 {
        " (or `std::hardware_destructive_interference_size` for the number)"
    } else {
        ""
    }
}

fn bare(name: &str) -> &str {
    name.strip_prefix("struct ")
        .or_else(|| name.strip_prefix("class "))
        .unwrap_or(name)
}

/// Whether `name` is a type that the user can't put an alignment on: a number, a pointer, or a
/// library's type.
pub(crate) fn is_foreign_type(name: &str) -> bool {
    const NUMBERS: [&str; 30] = [
        "char",
        "short",
        "int",
        "long",
        "float",
        "double",
        "bool",
        "_Bool",
        "size_t",
        "ssize_t",
        "u8",
        "u16",
        "u32",
        "u64",
        "u128",
        "usize",
        "i8",
        "i16",
        "i32",
        "i64",
        "i128",
        "isize",
        "f32",
        "f64",
        "uintptr_t",
        "intptr_t",
        "unsigned",
        "signed",
        "ptrdiff_t",
        "time_t",
    ];
    const LIBRARIES: [&str; 13] = [
        "std::",
        "core::",
        "alloc::",
        "boost::",
        "pthread_",
        "Atomic",
        "atomic_",
        "Mutex<",
        "RwLock<",
        "Option<",
        "Cell<",
        "UnsafeCell<",
        "parking_lot::",
    ];
    let name = name.trim();
    let first = name.split([' ', '<']).next().unwrap_or(name);
    name.ends_with('*')
        || name.starts_with('&')
        || name.starts_with("_Atomic")
        || name.starts_with("volatile ")
        || NUMBERS.contains(&first)
        || LIBRARIES.iter().any(|l| name.starts_with(l))
        || ((first.starts_with("int") || first.starts_with("uint")) && first.ends_with("_t"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_library_types_are_not_the_users() {
        for foreign in [
            "unsigned long",
            "long long int",
            "uint64_t",
            "int32_t",
            "std::atomic<long>",
            "pthread_mutex_t",
            "AtomicU64",
            "Mutex<u64>",
            "struct node *",
            "_Atomic(long)",
            "volatile int",
            "core::sync::atomic::AtomicU64",
        ] {
            assert!(is_foreign_type(foreign), "{foreign}");
        }
        for own in [
            "counter",
            "struct counter",
            "lreg_args",
            "app::Slot",
            "internal",
            "Longing",
        ] {
            assert!(!is_foreign_type(own), "{own}");
        }
    }

    #[test]
    fn the_extension_decides() {
        for (file, language) in [
            ("/a/b.c", Some(Language::C)),
            ("b.cc", Some(Language::Cpp)),
            ("b.C", Some(Language::Cpp)),
            ("src/lib.rs", Some(Language::Rust)),
            ("x.h", None),
            ("Makefile", None),
        ] {
            assert_eq!(Language::of_file(file), language, "{file}");
        }
    }
}
