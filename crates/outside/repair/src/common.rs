//! Whether memory that was mapped with `MAP_SHARED` is this process's alone. Anonymous memory is,
//! until the process forks. Bytes of memory that others have must not be moved: they would look for
//! them at the old place. Called by `movable`, and by `attach::inject` before and while all threads
//! are stopped for a move. After the move, bytes go back before each fork. Only reads.

use sunder_access::{Address, Mapping, Mappings, ProcessId};
use sunder_observe::proc::{AnonymousShared, is_anonymous_shared};

/// Why memory is left alone that was mapped with `MAP_SHARED`.
const OTHERS: &str = "its memory may be shared with other processes";

/// Pages, and what is known of the processes that may have them in common.
pub struct CommonMemory {
    page: u64,
    len: u64,
    /// `None` for private memory.
    memory: Option<AnonymousShared>,
}

impl CommonMemory {
    /// The pages from this address on, of so many bytes.
    ///
    /// # Errors
    /// Says why another process may have them.
    pub fn at(process: ProcessId, (page, len): (u64, u64)) -> Result<Self, String> {
        let memory = AnonymousShared::at(process, Address(page));
        let mut memory = memory.map_err(|e| e.to_string())?;
        if let Some(memory) = &mut memory {
            memory.is_of_one_process()?;
        }
        Ok(Self { page, len, memory })
    }

    /// Looks again, only at what is new since. To be asked while all threads of the process are
    /// stopped, so that none of them can fork before the move.
    ///
    /// # Errors
    /// Says why another process may have the pages.
    pub fn is_still_of_one_process(&mut self, mappings: &Mappings) -> Result<(), String> {
        let mapping = mappings.at(Address(self.page));
        let mapping = mapping.ok_or("its mapping is not known")?;
        match &mut self.memory {
            None if mapping.shared => Err(OTHERS.into()),
            None => Ok(()),
            Some(memory) if !memory.is_in(mapping) => Err("its mapping has just changed".into()),
            Some(memory) => {
                is_mapped_once(mappings, mapping, self.page, self.len)?;
                memory.is_of_one_process()
            }
        }
    }
}

/// Whether these pages of `mapping`, which was mapped with `MAP_SHARED`, may be this process's alone.
///
/// # Errors
/// Says why not.
pub fn may_be_alone(
    mappings: &Mappings,
    mapping: &Mapping,
    page: u64,
    len: u64,
) -> Result<(), String> {
    if !is_anonymous_shared(mapping) {
        return Err(OTHERS.into());
    }
    is_mapped_once(mappings, mapping, page, len)
}

/// Shared memory can be mapped a second time in the same process (`mremap` with a length of 0). Bytes
/// that moved would be missing there.
fn is_mapped_once(
    mappings: &Mappings,
    mapping: &Mapping,
    page: u64,
    len: u64,
) -> Result<(), String> {
    let from = mapping.file_offset_of(Address(page));
    let mut others = mappings.iter().filter(|other| {
        let end = other.file_offset.saturating_add(other.span.len);
        other.shared
            && other.inode == mapping.inode
            && other.path == mapping.path
            && other.span != mapping.span
            && other.file_offset < from.saturating_add(len)
            && from < end
    });
    match others.next() {
        None => Ok(()),
        Some(_) => Err("its memory is mapped twice".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::tests::writable;

    #[test]
    fn pages_that_are_mapped_twice_are_left_alone() {
        let of = |start: u64, len: u64, file_offset: u64, inode: u64| Mapping {
            shared: true,
            inode,
            file_offset,
            ..writable(start, start + len, "/dev/zero (deleted)")
        };
        let first = of(0x10_0000, 0x4000, 0, 7);
        let once = |other: Option<Mapping>, page: u64| {
            let mappings: Mappings = other.into_iter().chain([first.clone()]).collect();
            is_mapped_once(&mappings, &first, page, 0x1000).is_ok()
        };
        assert!(once(None, 0x10_1000));
        assert!(once(Some(of(0x20_0000, 0x4000, 0, 8)), 0x10_1000));
        let second = || Some(of(0x20_0000, 0x1000, 0x2000, 7));
        assert!(once(second(), 0x10_1000), "other pages of the same memory");
        assert!(!once(second(), 0x10_2000));
        assert!(once(second(), 0x10_3000));
    }
}
