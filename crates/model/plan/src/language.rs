//! The source language of the data, and how alignment is written in that language.

use crate::words::list;
use sunder_findings::{Finding, Language as Stated};

/// A source language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    /// C.
    C,
    /// C++.
    Cpp,
    /// Rust.
    Rust,
    /// Go.
    Go,
    /// A language whose code a runtime makes while the program runs.
    Managed(Runtime),
    /// Neither debug information nor a file's name tells.
    Unknown,
}

/// A runtime that makes code while a program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    /// A Java virtual machine.
    Java,
    /// Node.
    Node,
    /// CPython.
    Python,
    /// .NET.
    Dotnet,
}

impl Language {
    /// The language that the debug information states; else that of the files that declare,
    /// allocate or touch the object, the nearest to the data first.
    pub(crate) fn of(finding: &Finding) -> Self {
        let object = &finding.object;
        if let Some(stated) = object.language {
            return Self::stated(stated);
        }
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

    fn stated(language: Stated) -> Self {
        match language {
            Stated::C => Self::C,
            Stated::Cpp => Self::Cpp,
            Stated::Rust => Self::Rust,
            Stated::Go => Self::Go,
            Stated::Java => Self::Managed(Runtime::Java),
            Stated::Javascript => Self::Managed(Runtime::Node),
            Stated::Python => Self::Managed(Runtime::Python),
            Stated::Dotnet => Self::Managed(Runtime::Dotnet),
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
            "go" => Some(Self::Go),
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
            Self::Go => format!("put {} at the end of `{name}`", go_pad(line)),
            Self::Managed(_) | Self::Unknown => format!("align `{name}` to {line} bytes"),
        }
    }

    /// The text that aligns the elements of the array `array`, whose type has no name.
    pub(crate) fn align_unnamed(self, array: &str, line: u32) -> String {
        match self {
            Self::C => format!(
                "put `_Alignas({line})` on the first member of the struct in the declaration of \
                 {array}"
            ),
            Self::Cpp => format!(
                "write `struct alignas({line}) {{` in the declaration of {array}{}",
                interference(line)
            ),
            Self::Go => format!(
                "put {} at the end of the struct in the declaration of {array}",
                go_pad(line)
            ),
            _ => format!("align the element's type to {line} bytes"),
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
            Self::Go => format!(
                "make the element a struct of a `{name}` and {}",
                go_pad(line)
            ),
            Self::Managed(_) | Self::Unknown => format!("pad each `{name}` to {line} bytes"),
        }
    }

    /// The text that gives elements of a type whose name is not known lines of their own.
    pub(crate) fn wrap_element(self, line: u32) -> String {
        match self {
            Self::Rust => format!(
                "put `#[repr(align({line}))]` on the element's type, or make the element \
                 `CachePadded` of it (crossbeam-utils)"
            ),
            Self::Cpp => format!(
                "make the element a struct with `alignas({line})` that holds the value{}",
                interference(line)
            ),
            Self::Go => format!("make the element a struct of it and {}", go_pad(line)),
            Self::Managed(_) => format!("pad each element to {line} bytes"),
            Self::C | Self::Unknown => format!(
                "make the element a structure that is aligned to {line} bytes and holds the value"
            ),
        }
    }

    /// The text before members, or in their place, that makes each start a line. The members are as
    /// in a sentence.
    pub(crate) fn before_members(self, members: &[String], line: u32) -> String {
        let all = list(members);
        match self {
            Self::C => format!("put `_Alignas({line})` before {all}"),
            Self::Cpp => format!("put `alignas({line})` before {all}"),
            Self::Rust => {
                let each = if members.len() > 1 { "each " } else { "" };
                format!(
                    "wrap {all} {each}in `CachePadded` (crossbeam-utils) or in a struct with \
                     `#[repr(align({line}))]`"
                )
            }
            Self::Go => format!("put {} before {all}", go_pad(line)),
            Self::Managed(_) | Self::Unknown => match members.len() {
                1 => format!("let {all} start a new line of {line} bytes"),
                _ => format!("let {all} each start a new line of {line} bytes"),
            },
        }
    }

    /// The text that aligns a variable, which is given as in a sentence.
    pub(crate) fn align_variable(self, name: &str, line: u32) -> String {
        match self {
            Self::C => format!("declare {name} with `_Alignas({line})`"),
            Self::Cpp => format!("declare {name} with `alignas({line})`"),
            Self::Rust => format!(
                "wrap {name} in `CachePadded` (crossbeam-utils) or in a struct with \
                 `#[repr(align({line}))]`"
            ),
            Self::Go => format!(
                "make {name} a field of a struct that begins and ends with {}",
                go_pad(line)
            ),
            Self::Managed(_) | Self::Unknown => format!("align {name} to {line} bytes"),
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
                    "`std::aligned_alloc({line}, {size})`, or (since C++17) `new` of a type with \
                     `alignas({line})`"
                )
            }
            Self::Go => format!(
                "`new` of a struct that begins and ends with {}",
                go_pad(line)
            ),
            Self::C | Self::Managed(_) | Self::Unknown => {
                format!("`aligned_alloc({line}, {size})`")
            }
        }
    }

    /// How to get the names of code without debug information.
    pub(crate) const fn to_learn_more(self) -> &'static str {
        match self {
            Self::Managed(Runtime::Java) => {
                " Start the JVM with `-XX:+PreserveFramePointer -XX:+DumpPerfMapAtExit` (JDK 17 or \
                 later), or with perf-map-agent, to learn the names of methods."
            }
            Self::Managed(Runtime::Node) => {
                " Start Node with `--perf-basic-prof` to learn the names of functions."
            }
            Self::Managed(Runtime::Python) => {
                " Start Python (3.12 or later) with `-X perf` to learn the names of functions."
            }
            Self::Managed(Runtime::Dotnet) => {
                " Set `DOTNET_PerfMapEnabled=1` to learn the names of methods."
            }
            Self::Go => " Build without `-ldflags=-w` to learn the names of variables.",
            _ => " Build with -g to learn the names of variables and source lines.",
        }
    }

    /// The runtime's own way to take fields apart, as a sentence; empty for compiled languages.
    pub(crate) const fn own_fix(self) -> &'static str {
        match self {
            Self::Managed(Runtime::Java) => {
                " In Java, `@Contended` (`jdk.internal.vm.annotation`, with \
                 `-XX:-RestrictContended`) does that for a field or class."
            }
            Self::Managed(Runtime::Node) => {
                " JavaScript threads share a `SharedArrayBuffer` only: leave that many bytes \
                 between the elements of different workers."
            }
            Self::Managed(Runtime::Dotnet) => {
                " In .NET, `[StructLayout(LayoutKind.Explicit)]` with `[FieldOffset]` does that \
                 for the fields of a struct."
            }
            _ => "",
        }
    }
}

/// Padding as Go has it: the package's type has the size of the processor's lines.
fn go_pad(line: u32) -> String {
    format!("`_ cpu.CacheLinePad` (golang.org/x/sys/cpu; or `_ [{line}]byte`)")
}

/// The standard library's constant for the line size, for 64 bytes: that is its value with gcc
/// and clang.
fn interference(line: u32) -> &'static str {
    if line == 64 {
        " (since C++17, `std::hardware_destructive_interference_size` for the number)"
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
    const NUMBERS: [&str; 40] = [
        "uint",
        "uint8",
        "uint16",
        "uint32",
        "uint64",
        "int8",
        "int16",
        "int32",
        "int64",
        "uintptr",
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
    const LIBRARIES: [&str; 14] = [
        "sync/",
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
        || name.starts_with('*')
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
            ("main.go", Some(Language::Go)),
            ("x.h", None),
            ("Makefile", None),
        ] {
            assert_eq!(Language::of_file(file), language, "{file}");
        }
    }
}
