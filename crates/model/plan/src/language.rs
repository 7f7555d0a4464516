//! The source language of the data, and how alignment is written in that language.

use crate::library_types::{is_foreign_type, is_number, unqualified};
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
    /// Fortran.
    Fortran,
    /// A language whose code a runtime makes while the program runs.
    Managed(Runtime),
    /// A file's name tells a language for which there are no words here.
    Other,
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
            // Units that are shared by several files (dwz) do not state their language.
            Self::C
                if object
                    .type_name
                    .as_deref()
                    .is_some_and(|t| t.contains("::")) =>
            {
                Self::Cpp
            }
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
        let (before, extension) = path.rsplit_once('.')?;
        match extension {
            // What Nim's compiler makes of a module.
            "c" | "cpp" if before.ends_with(".nim") => Some(Self::Other),
            "c" => Some(Self::C),
            "cc" | "cpp" | "cxx" | "c++" | "C" | "hpp" | "hh" | "hxx" | "h++" | "ipp" | "tcc" => {
                Some(Self::Cpp)
            }
            "rs" => Some(Self::Rust),
            "go" => Some(Self::Go),
            "f" | "for" | "ftn" | "f77" | "f90" | "f95" | "f03" | "f08" | "f18" | "F" | "FOR"
            | "F90" | "F95" | "F03" | "F08" => Some(Self::Fortran),
            "adb" | "ads" | "pas" | "pp" | "lpr" | "d" | "nim" | "zig" | "swift" | "hs" | "ml"
            | "jl" | "cr" | "odin" | "scala" | "kt" | "lisp" | "scm" => Some(Self::Other),
            _ => None,
        }
    }

    fn any_header(finding: &Finding) -> bool {
        let declared = finding.object.declared.iter().map(|d| d.file.as_str());
        let touched = finding.sites.iter().filter_map(|s| s.file.as_deref());
        declared.chain(touched).any(|f| f.ends_with(".h"))
    }

    /// The text that gives elements of the type `name` lines of their own.
    pub(crate) fn type_on_own_lines(self, name: &str, line: u32) -> String {
        // A row `T[8]`, which is no name of a type before a member's.
        let row = name.ends_with(']') && !name.starts_with('[');
        match is_foreign_type(name) {
            _ if row => self.wrap_element(line),
            true => self.wrap_type(name, line),
            false => self.align_type(name, line),
        }
    }

    /// The text that aligns the user's own type `name`.
    fn align_type(self, name: &str, line: u32) -> String {
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
            Self::Fortran | Self::Other if is_number(name) => self.wrap_type(name, line),
            Self::Fortran => {
                format!("put a component of {line} bytes that nobody uses at the end of `{name}`")
            }
            // The name may be one that the compiler made up.
            Self::Other => format!("let each fill whole lines of {line} bytes"),
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
    fn wrap_type(self, name: &str, line: u32) -> String {
        let name = name.strip_prefix("const ").unwrap_or(name);
        // In C, `struct` is a part of a type's name.
        let name = if self == Self::C {
            name
        } else {
            unqualified(name)
        };
        match self {
            Self::C => {
                format!("make the element `struct padded {{ _Alignas({line}) {name} value; }}`")
            }
            Self::Cpp => format!(
                "make the element `struct alignas({line}) Padded {{ {name} value; }}`{}",
                interference(line)
            ),
            Self::Rust if pads(line) => format!(
                "make the element `CachePadded<{name}>` (crossbeam-utils), or a struct of it \
                 with `#[repr(align({line}))]`"
            ),
            Self::Rust => {
                format!("make the element a struct of `{name}` with `#[repr(align({line}))]`")
            }
            Self::Go => format!(
                "make the element a struct of a `{name}` and {}",
                go_pad(line)
            ),
            Self::Fortran => column(line),
            Self::Other => {
                format!("make the element a record that fills {line} bytes and holds the value")
            }
            Self::Managed(_) | Self::Unknown => format!("pad each `{name}` to {line} bytes"),
        }
    }

    /// The text that gives elements of a type whose name is not known lines of their own.
    pub(crate) fn wrap_element(self, line: u32) -> String {
        match self {
            Self::Rust if pads(line) => format!(
                "put `#[repr(align({line}))]` on the element's type, or make the element \
                 `CachePadded` of it (crossbeam-utils)"
            ),
            Self::Rust => format!("put `#[repr(align({line}))]` on the element's type"),
            Self::Cpp => format!(
                "make the element a struct with `alignas({line})` that holds the value{}",
                interference(line)
            ),
            Self::Go => format!("make the element a struct of it and {}", go_pad(line)),
            Self::Fortran => column(line),
            Self::Managed(_) => format!("pad each element to {line} bytes"),
            Self::C | Self::Other | Self::Unknown => format!(
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
                format!("wrap {all} {each}in {}", in_rust(line))
            }
            Self::Go => format!("put {} before {all}", go_pad(line)),
            Self::Fortran | Self::Other => {
                format!("put {line} bytes that nobody uses before {all}")
            }
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
            Self::Rust => format!("wrap {name} in {}", in_rust(line)),
            Self::Go => format!(
                "make {name} a field of a struct that begins and ends with {}",
                go_pad(line)
            ),
            Self::Fortran | Self::Other => format!(
                "make {name} part of a record, with {line} bytes that nobody uses on each side"
            ),
            Self::Managed(_) | Self::Unknown => format!("align {name} to {line} bytes"),
        }
    }

    /// How to get the names of code without debug information.
    pub(crate) const fn to_learn_more(self) -> &'static str {
        match self {
            Self::Managed(Runtime::Java) => {
                " To learn the names of methods, start the JVM with `-XX:+PreserveFramePointer \
                 -XX:+UnlockDiagnosticVMOptions -XX:+DumpPerfMapAtExit` (JDK 17 or later), or with \
                 perf-map-agent; have a running one write its map by `jcmd PID Compiler.perfmap` first."
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

/// What gives elements of a Fortran array lines of their own: Fortran can't align, and its first index
/// runs over neighbours in memory.
fn column(line: u32) -> String {
    format!(
        "make each element a column of its own: a first dimension that fills {line} bytes, of which \
         one index is used"
    )
}

/// Padding as Go has it: the package's type has the size of the processor's lines.
pub(crate) fn go_pad(line: u32) -> String {
    format!("`_ cpu.CacheLinePad` (golang.org/x/sys/cpu; or `_ [{line}]byte`)")
}

/// Whether crossbeam's `CachePadded` keeps values so many bytes apart: on x86-64 it aligns them to 128.
pub(crate) const fn pads(line: u32) -> bool {
    line <= 128
}

/// What a value of Rust is wrapped in.
fn in_rust(line: u32) -> String {
    let own = format!("a struct with `#[repr(align({line}))]`");
    match pads(line) {
        true => format!("`CachePadded` (crossbeam-utils) or in {own}"),
        false => own,
    }
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

/// The name by which a type is declared: without its kind, and without the function that it is local to.
fn bare(whole: &str) -> &str {
    let name = whole.strip_prefix("struct ");
    let name = name
        .or_else(|| whole.strip_prefix("class "))
        .unwrap_or(whole);
    name.rsplit_once(")::").map_or(name, |(_, local)| local)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_librarys_type_is_wrapped_whatever_stands_before_its_name() {
        let cpp = Language::Cpp.type_on_own_lines("struct std::atomic<long int>", 64);
        assert!(
            cpp.contains("Padded { std::atomic<long int> value; }"),
            "{cpp}"
        );
        let number = Language::Cpp.type_on_own_lines("const long", 64);
        assert!(number.contains("Padded { long value; }"), "{number}");
        let c = Language::C.type_on_own_lines("const long", 64);
        assert!(c.contains("_Alignas(64) long value;"), "{c}");
    }

    #[test]
    fn a_local_type_is_declared_by_its_own_name() {
        assert_eq!(bare("struct stats"), "stats");
        assert_eq!(bare("class a::Stats"), "a::Stats");
        assert_eq!(bare("solution(int, char)::Accumulator"), "Accumulator");
    }

    /// It aligns to 128 bytes.
    #[test]
    fn crossbeams_wrapper_is_not_for_wider_lines() {
        let text = |line| Language::Rust.align_variable("`HEAD`", line);
        assert!(text(64).contains("CachePadded") && text(128).contains("CachePadded"));
        assert_eq!(
            text(256),
            "wrap `HEAD` in a struct with `#[repr(align(256))]`"
        );
    }

    #[test]
    fn what_has_no_declaration_is_wrapped() {
        let of = |language: Language, name| language.type_on_own_lines(name, 64);
        assert!(of(Language::Rust, "(AtomicU64, u64)").contains("`CachePadded<(AtomicU64, u64)>`"));
        assert!(of(Language::Rust, "[u64; 4]").contains("`CachePadded<[u64; 4]>`"));
        assert!(of(Language::Go, "[4]uint64").contains("a struct of a `[4]uint64`"));
        for language in [Language::C, Language::Cpp] {
            assert!(!of(language, "long[4]").contains("long[4]"));
        }
        let own = "(anonymous namespace)::Slot";
        assert!(of(Language::Cpp, own).contains("`struct alignas(64) "));
    }

    #[test]
    fn the_extension_decides() {
        for (file, language) in [
            ("/a/b.c", Some(Language::C)),
            ("b.cc", Some(Language::Cpp)),
            ("b.C", Some(Language::Cpp)),
            ("src/lib.rs", Some(Language::Rust)),
            ("main.go", Some(Language::Go)),
            ("solve.f90", Some(Language::Fortran)),
            ("main.adb", Some(Language::Other)),
            ("cache/@mcount.nim.c", Some(Language::Other)),
            ("nim.c", Some(Language::C)),
            ("x.h", None),
            ("Makefile", None),
        ] {
            assert_eq!(Language::of_file(file), language, "{file}");
        }
    }
}
