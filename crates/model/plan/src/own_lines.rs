//! How a heap block gets cache lines of its own at the place that allocates it, in the words of its
//! language: nobody calls the allocator for the elements of a `std::vector` or for what is in an `Arc`.

use crate::language::{Language, go_pad, pads};
use sunder_findings::Object;

/// Who calls the allocator for a block of C++.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caller {
    /// An expression of `new`, `std::make_unique` or `std::make_shared`.
    New,
    /// A container that allocates each element alone, such as `std::map`.
    Node,
    /// A container whose block holds all its elements, such as `std::vector`.
    Elements,
    /// The program, by `malloc` or a function like it.
    Program,
    /// Not known.
    Unknown,
}

impl Caller {
    /// Read from the frames between the allocator and the user's own code.
    fn of(object: &Object) -> Self {
        const NODES: [&str; 5] = [
            "std::_Rb_tree",
            "std::__cxx11::list",
            "std::__cxx11::_List",
            "std::_Hashtable",
            "std::__detail::_Hashtable",
        ];
        const ELEMENTS: [&str; 6] = [
            "std::vector",
            "std::_Vector",
            "std::deque",
            "std::_Deque",
            "std::__cxx11::basic_string",
            "std::basic_string",
        ];
        let own = object.allocation_site();
        let between = || {
            let frames = object.allocation.iter();
            frames.take_while(|&f| own.is_none_or(|own| !std::ptr::eq(own, f)))
        };
        let any = |names: &[&str]| {
            between().any(|f| {
                let function = f.function.replace("std::__1::", "std::");
                names.iter().any(|n| function.starts_with(n))
            })
        };
        if any(&ELEMENTS) {
            Self::Elements
        } else if any(&NODES) {
            Self::Node
        } else if object.allocation.iter().any(is_new) {
            Self::New
        } else if object.allocation.is_empty() {
            Self::Unknown
        } else {
            // A call stack begins with the allocator's caller, so `malloc` itself is not in it.
            Self::Program
        }
    }
}

/// Whether the frame is an `operator new`.
pub(crate) fn is_new(frame: &sunder_findings::Frame) -> bool {
    frame.function.starts_with("operator new")
}

/// The end of a sentence that begins with "allocate": `size` bytes (`None` if not known) at the start
/// of a line of `line` bytes.
pub(crate) fn how(language: Language, object: &Object, line: u32, size: Option<u64>) -> String {
    let bytes = size.map_or_else(|| "size rounded up".to_owned(), |s| s.to_string());
    let one_line = size.is_none_or(|s| s <= u64::from(line));
    match language {
        Language::Rust if one_line && pads(line) => {
            format!("as `CachePadded` (crossbeam-utils) or as a type with `#[repr(align({line}))]`")
        }
        Language::Rust if one_line => format!("as a type with `#[repr(align({line}))]`"),
        Language::Rust => format!(
            "as a type with `#[repr(align({line}))]` (elements of a `Vec`, too), or with \
             `Layout::from_size_align({bytes}, {line})`"
        ),
        Language::Cpp => in_cpp(Caller::of(object), line, &bytes, one_line),
        Language::Go => format!(
            "with `new` of a struct that begins and ends with {}",
            go_pad(line)
        ),
        Language::Fortran | Language::Other => {
            format!("at a multiple of {line} bytes, with a size of {bytes}")
        }
        Language::C | Language::Managed(_) | Language::Unknown => {
            format!("with `aligned_alloc({line}, {bytes})`")
        }
    }
}

fn in_cpp(caller: Caller, line: u32, bytes: &str, one_line: bool) -> String {
    let typed = format!("as a type with `alignas({line})` (since C++17)");
    let call = format!("with `std::aligned_alloc({line}, {bytes})`");
    match caller {
        Caller::New => typed,
        Caller::Node => format!(
            "with elements of a type with `alignas({line})` (since C++17 the container aligns them)"
        ),
        Caller::Elements if one_line => format!(
            "with elements of a type with `alignas({line})` (since C++17 the container aligns \
             them), or with an allocator that aligns to {line} bytes \
             (`boost::alignment::aligned_allocator`)"
        ),
        // Elements that fill a line each would make a long array many times as large.
        Caller::Elements => format!(
            "with an allocator that aligns to {line} bytes (`boost::alignment::aligned_allocator`)"
        ),
        Caller::Program => call,
        Caller::Unknown => format!("{call}, or {typed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sunder_findings::{Frame, ObjectKind};

    fn allocated_through(functions: &[&str]) -> Object {
        let frame = |(n, function): (usize, &&str)| Frame {
            function: (*function).into(),
            file: (n > 0).then(|| match function.starts_with("std::") {
                true => "/usr/include/c++/12/bits/stl_vector.h".into(),
                false => "/home/me/pool.cpp".into(),
            }),
            ..Frame::default()
        };
        Object {
            kind: ObjectKind::Heap,
            allocation: functions.iter().enumerate().map(frame).collect(),
            ..Object::default()
        }
    }

    fn said(functions: &[&str], size: u64) -> String {
        how(Language::Cpp, &allocated_through(functions), 64, Some(size))
    }

    #[test]
    fn who_uses_a_container_is_not_told_to_call_an_allocator() {
        let vector = ["operator new", "std::vector<long>::reserve", "Pool::Pool"];
        let short = said(&vector, 64);
        assert!(short.starts_with("with elements of a type with `alignas(64)`"));
        let long = said(&vector, 640);
        assert!(long.starts_with("with an allocator that aligns to 64 bytes"));
        let tree = [
            "operator new",
            "std::_Rb_tree<int, long>::_M_create_node",
            "f",
        ];
        assert!(said(&tree, 64).contains("the container aligns them"));
        for text in [short, long, said(&tree, 640)] {
            assert!(!text.contains("aligned_alloc("), "{text}");
        }
    }

    #[test]
    fn new_takes_a_type_and_malloc_a_size() {
        let new = ["operator new", "Pool::Pool", "main"];
        assert_eq!(said(&new, 64), "as a type with `alignas(64)` (since C++17)");
        let malloc = ["make_pool", "main"];
        assert_eq!(said(&malloc, 128), "with `std::aligned_alloc(64, 128)`");
        let unknown = said(&[], 128);
        assert!(unknown.contains("aligned_alloc") && unknown.contains("alignas"));
    }

    #[test]
    fn the_users_own_vectors_further_out_say_nothing_of_a_block() {
        // The program calls `new` in a function that a container calls.
        let called = [
            "operator new",
            "Cell::make",
            "std::vector<Cell>::resize",
            "main",
        ];
        assert_eq!(
            said(&called, 64),
            "as a type with `alignas(64)` (since C++17)"
        );
    }
}
