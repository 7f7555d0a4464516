//! A process's memory as a file, `/proc/self/mem`. The kernel reads and writes it without regard to
//! rights, so no call fails where bytes have moved: what is read is zeros, and what is written is
//! lost. So before the program opens such a file, everything goes back for good (`before.rs`). The tool
//! moves nothing while one is open. A link to it by another name, and one that another process sends, are
//! not noticed. The same for `/dev/userfaultfd`, by which a program handles the faults of its memory: of
//! memory that was mapped anew in between, as moved pages are, it would learn nothing.
//!
//! Contexts: all.

use crate::peek::word_in_place;

/// No path is longer, in bytes.
const LONGEST: u64 = 4096;

/// Whether the call opens the memory of a process.
pub fn is_opened(number: i64, arguments: &[u64; 6]) -> bool {
    let path = match number {
        libc::SYS_open => arguments[0],
        libc::SYS_openat | libc::SYS_openat2 => arguments[1],
        _ => return false,
    };
    is_memory(path, &word_in_place)
}

/// Whether the last part of the path at this address is the name of a process's memory, or of the device
/// of its faults. `word` reads the aligned word at an address.
fn is_memory(path: u64, word: &dyn Fn(u64) -> Option<u64>) -> bool {
    // A name alone is one in the folder from which the call counts.
    let mut last = *b"           /";
    let mut at = path & !7;
    let mut skipped = (path & 7) as usize;
    while at < path.saturating_add(LONGEST) {
        let Some(word) = word(at) else {
            return false;
        };
        for &byte in word.to_le_bytes().iter().skip(skipped) {
            if byte == 0 {
                return last.ends_with(b"/mem") || last == *b"/userfaultfd";
            }
            last.rotate_left(1);
            last[11] = byte;
        }
        skipped = 0;
        at += 8;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::is_memory;

    /// `path` after some bytes of something else, as it would lie in memory.
    fn is_memory_at(offset: usize, path: &[u8]) -> bool {
        let mut bytes = vec![b'x'; offset];
        bytes.extend_from_slice(path);
        bytes.push(0);
        // Nothing can be read behind it.
        let word = |at: u64| {
            let mut word = [0xff; 8];
            let from = at.checked_sub(0x1000)? as usize;
            let rest = bytes.get(from..).filter(|rest| !rest.is_empty())?;
            let there = rest.get(..8.min(rest.len()))?;
            word[..there.len()].copy_from_slice(there);
            Some(u64::from_le_bytes(word))
        };
        is_memory(0x1000 + offset as u64, &word)
    }

    #[test]
    fn the_last_part_of_a_path_tells() {
        for offset in 0..9 {
            for path in [
                "/proc/self/mem",
                "mem",
                "/proc/1234/task/1235/mem",
                "self/mem",
                "//mem",
                "/dev/userfaultfd",
                "userfaultfd",
            ] {
                assert!(is_memory_at(offset, path.as_bytes()), "{path} at {offset}");
            }
            for path in [
                "",
                "em",
                "/proc/meminfo",
                "/proc/self/maps",
                "/tmp/amem",
                "/mem/x",
                "/proc/self/mem/",
                "/dev/userfaultfds",
                "xuserfaultfd",
                "faultfd",
            ] {
                assert!(!is_memory_at(offset, path.as_bytes()), "{path} at {offset}");
            }
        }
    }

    #[test]
    fn a_path_without_an_end_is_none() {
        assert!(!is_memory(0x1003, &|_| Some(u64::from_le_bytes(
            *b"/mem/mem"
        ))));
        assert!(!is_memory(0x1003, &|_| None));
    }
}
