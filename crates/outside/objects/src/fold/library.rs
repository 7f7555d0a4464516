//! Which files, functions and records belong to a language's library or to an allocator, so that users do
//! not know what is in them. Pure text: no file is opened.

use std::borrow::Cow;

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
}
