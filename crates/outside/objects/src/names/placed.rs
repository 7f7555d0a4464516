//! Which file a mapping is of, and an address within it.

use sunder_access::{LinkAddress, Mapping};

/// An address within a module.
#[derive(Clone, Copy)]
pub(crate) struct Placed {
    pub(crate) module: usize,
    pub(crate) link: LinkAddress,
    /// Runtime address minus link address.
    pub(crate) bias: u64,
}

/// The path of the file of `mapping`, without the mark of deleted files.
pub fn file_name_of(mapping: &Mapping) -> &str {
    let path = mapping.path.as_str();
    path.strip_suffix(" (deleted)").unwrap_or(path)
}

/// Whether `mapping` is of a file.
pub(super) fn is_backed(mapping: &Mapping) -> bool {
    mapping.path.starts_with('/')
}

/// Whether `path` is that of the C library or the dynamic linker: the names of their parameters
/// say nothing about a program's objects.
pub fn is_c_library(path: &str) -> bool {
    let file = path.rsplit('/').next().unwrap_or_default();
    ["libc.so", "libc-2.", "libpthread", "ld-linux", "ld-musl"]
        .iter()
        .any(|name| file.starts_with(name))
}
