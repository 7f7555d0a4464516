//! Types whose layout the user can't change: numbers, pointers and types of the languages' libraries.

/// Whether `name` is a type that the user can't put an alignment on: a number, a pointer, a tuple or array,
/// or a library's type.
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
    let name = unqualified(name);
    let first = name.split([' ', '<']).next().unwrap_or(name);
    // C++ has `(anonymous namespace)::Slot`, which is the user's.
    let is_tuple = name.starts_with('(') && name.ends_with(')') && name.contains(',');
    name.ends_with('*')
        || is_tuple
        || name.starts_with('[')
        || name.starts_with('*')
        || name.starts_with('&')
        || name.starts_with("_Atomic")
        || name.starts_with("volatile ")
        || NUMBERS.contains(&first)
        || LIBRARIES.iter().any(|l| name.starts_with(l))
        || ((first.starts_with("int") || first.starts_with("uint")) && first.ends_with("_t"))
}

/// The name without what compilers, and readers of their debug information, put before it.
pub(crate) fn unqualified(name: &str) -> &str {
    let mut name = name.trim();
    let strip = |name| {
        let all = ["const ", "struct ", "class "];
        all.iter().find_map(|one| str::strip_prefix(name, one))
    };
    while let Some(rest) = strip(name) {
        name = rest;
    }
    name
}

/// Whether `name` is a number's type of Fortran, Ada, Pascal or D, which other languages may use for a
/// type of the user's.
pub(crate) fn is_number(name: &str) -> bool {
    const NUMBERS: [&str; 31] = [
        "integer",
        "real",
        "logical",
        "complex",
        "character",
        "short_integer",
        "long_integer",
        "long_long_integer",
        "short_float",
        "long_float",
        "long_long_float",
        "natural",
        "positive",
        "boolean",
        "double",
        "single",
        "extended",
        "smallint",
        "shortint",
        "longint",
        "longword",
        "qword",
        "dword",
        "word",
        "byte",
        "cardinal",
        "ulong",
        "ushort",
        "ubyte",
        "wchar",
        "dchar",
    ];
    let name = name.trim().trim_start_matches("volatile ");
    let first = name.split([' ', '(', '<']).next().unwrap_or(name);
    let plain = first.to_lowercase();
    is_foreign_type(name) || is_foreign_type(&plain) || NUMBERS.contains(&plain.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_other_languages() {
        for number in [
            "integer(kind=8)",
            "volatile real(kind=4)",
            "INT64",
            "Long_Integer",
            "QWORD",
            "ulong",
        ] {
            assert!(is_number(number), "{number}");
        }
        for own in ["t_cell", "Stats", "integers"] {
            assert!(!is_number(own), "{own}");
        }
    }

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
            "(AtomicU64, u64)",
            "[AtomicU64; 4]",
            "[4]uint64",
            "const long",
            "struct std::atomic<long int>",
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
            "(anonymous namespace)::Slot",
            "(anonymous struct)",
        ] {
            assert!(!is_foreign_type(own), "{own}");
        }
    }
}
