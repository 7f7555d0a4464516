//! In which file an address of code lies, and at which address of that file. It asks the kernel: the
//! loader's functions wait for its locks. Contexts: all.

use crate::maps::Mapping;
use crate::{maps, system};
use core::ops::ControlFlow;

/// The file that is mapped at `address`, and the address in it as tools like `addr2line` want it.
/// `name` gets the file's path. `None` if no file is mapped there.
pub fn find(address: u64, name: &mut [u8; 256]) -> Option<(u64, &[u8])> {
    let fd = maps::open(maps::OF_PROCESS)?;
    // The length of the path that was last seen, and the bias of its file.
    let (mut len, mut bias) = (0, 0);
    let mut found = false;
    maps::stream(fd, &mut [0; 1024], |mapping| {
        let known = name.get(..len).unwrap_or_default();
        let path = mapping.name.get(..name.len()).unwrap_or(mapping.name);
        if mapping.is_of_file() && path != known {
            len = path.len();
            bias = bias_of(mapping);
            for (to, from) in name.iter_mut().zip(path) {
                *to = *from;
            }
        }
        if !mapping.contains(address as usize) {
            return ControlFlow::Continue(());
        }
        found = mapping.is_of_file();
        ControlFlow::Break(())
    });
    system::close(fd);
    if !found {
        return None;
    }
    Some((address - bias, name.get(..len)?))
}

/// What is added to addresses of a file of code to get those in memory, by the first of its
/// mappings.
pub fn bias_of(first: &Mapping<'_>) -> u64 {
    let is_readable = first.mode[0] == b'r';
    // SAFETY: it can be read, and its file is at least as long as the header that the loader has read.
    let is_fixed = is_readable && unsafe { has_fixed_addresses(first.start) };
    if is_fixed { 0 } else { first.start as u64 }
}

/// Whether the program file that is mapped from `start` says that it can be loaded only there.
///
/// # Safety
/// The first page can be read.
unsafe fn has_fixed_addresses(start: usize) -> bool {
    const TYPE: usize = 16;
    const EXECUTABLE: u16 = 2;
    // SAFETY: by this function's contract.
    let header = unsafe { core::slice::from_raw_parts(start as *const u8, TYPE + 2) };
    header.starts_with(b"\x7fELF")
        && header
            .get(TYPE..)
            .is_some_and(|bytes| bytes == EXECUTABLE.to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_of_a_function_is_found() {
        let mut name = [0; 256];
        let here = the_file_of_a_function_is_found as *const () as u64;
        let (offset, path) = find(here, &mut name).expect("it is in a file");
        let own = std::env::current_exe().expect("the path of the executable is known");
        assert_eq!(path, own.as_os_str().as_encoded_bytes());
        // Code of a position-independent file lies behind its header.
        assert!(offset > 64 && offset < here, "{offset:x}");
        let local = 0_u64;
        assert_eq!(find(&raw const local as u64, &mut [0; 256]), None);
    }
}
