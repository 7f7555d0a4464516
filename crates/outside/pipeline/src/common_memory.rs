//! Which mappings are memory that processes have in common (`MAP_SHARED`, memory files, System V
//! segments). Pure; used by `process` and `shared`.

use sunder_access::{Mapping, Mappings, is_own_file};

/// Whether other processes may write to the mapping's memory.
pub fn is_common(mapping: &Mapping) -> bool {
    mapping.shared && mapping.inode != 0 && !is_own_file(&mapping.path)
}

/// Whether a process with these mappings has memory in common with others that is written at
/// all: every process maps some read-only tables of the C library.
pub fn has_common_memory(mappings: &Mappings) -> bool {
    mappings.iter().any(makes_common)
}

/// Whether the mapping is memory in common with others that is written, by this process or as a
/// rule by another.
pub fn makes_common(mapping: &Mapping) -> bool {
    const MADE_FOR_IT: [&str; 4] = ["/dev/shm/", "/memfd:", "/SYSV", "/dev/zero"];
    let made = || MADE_FOR_IT.iter().any(|p| mapping.path.starts_with(p));
    is_common(mapping) && (mapping.write || made())
}
