//! What the list of mappings says about the program's memory. Pure, but for [`read`].
//!
//! Contexts: all in which the C library's code may be executed (slices are compared).

use crate::files;
pub use sunder_guest::maps::{Mapping, all};
use sunder_guest::{maps, system};
use sunder_wire::isolation::MEMORY_NAME;

/// Whether the mapping is memory of the program's that was made sharable.
pub fn is_converted(mapping: &Mapping<'_>) -> bool {
    let name = mapping.name.strip_prefix(b"/memfd:").unwrap_or_default();
    !mapping.is_private() && name.starts_with(MEMORY_NAME.as_bytes())
}

/// Whether the mapping is memory that the program has mapped with `MAP_SHARED`, of a file or of none:
/// a worker has it as the program does. Not memory of devices, nor ours.
pub fn is_common(mapping: &Mapping) -> bool {
    const ANONYMOUS: &[u8] = b"/dev/zero (deleted)";
    let name = mapping.name;
    let device = name.starts_with(b"/dev/") && !name.starts_with(b"/dev/shm/");
    let plain = mapping.is_of_file() && (!device || name == ANONYMOUS);
    let ours = name.starts_with(b"/memfd:sunder-");
    !mapping.is_private() && !mapping.is_executable() && plain && !ours
}

/// Whether the mapping may be input: a private mapping of a file, writable, of which no part is
/// executable. Data of programs and libraries are none: they are written as a rule.
pub fn may_be_input(text: &[u8], mapping: &Mapping) -> bool {
    let of_code = |other: Mapping| other.is_executable() && other.name == mapping.name;
    mapping.mode == *b"rw-p"
        && mapping.is_of_file()
        && !mapping.name.starts_with(b"/dev/")
        && !all(text).any(of_code)
}

/// The parts of a range that lie in none of `kept`, from low to high. Needed because the kernel may
/// merge a mapping of the program's with one of ours beside it.
pub fn outside(start: usize, end: usize, kept: &[[usize; 2]]) -> impl Iterator<Item = [usize; 2]> {
    let mut at = start;
    core::iter::from_fn(move || {
        while let Some([_, to]) = kept.iter().find(|[from, to]| (*from..*to).contains(&at)) {
            at = *to;
        }
        if at >= end {
            return None;
        }
        let starts = kept.iter().map(|[from, _]| *from);
        let next = starts.filter(|from| *from > at).min();
        let part = [at, next.unwrap_or(end).min(end)];
        at = part[1];
        Some(part)
    })
}

/// Reads the list into `buffer` and returns its text, or `None` if it does not fit or can't be read
/// to its end.
pub fn read(buffer: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: a C string.
    let fd = unsafe { files::open(maps::OF_THREAD.as_ptr().cast(), false) }?;
    let length = maps::read_to_end(fd, buffer);
    system::close(fd);
    length.and_then(|length| buffer.get(..length))
}

/// How much of a range is sharable memory: the program's memory that was converted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharable {
    /// Nothing of the range is sharable.
    Nothing,
    /// Sharable memory, and beside it nothing but private anonymous memory; all of it is readable.
    Memory,
    /// Sharable memory beside other mappings or holes.
    Mixed,
}

/// Classifies a range by the text of such a list.
pub fn sharable(text: &[u8], start: usize, end: usize) -> Sharable {
    let mut found = Sharable::Nothing;
    let mut at = start;
    let mut is_memory = true;
    for mapping in all(text).filter(|m| m.start < end && start < m.end) {
        // The kernel's own pages (`[vdso]` and others) are excluded, too.
        let private =
            mapping.is_private() && !mapping.is_of_file() && !mapping.name.starts_with(b"[v");
        if is_converted(&mapping) {
            found = Sharable::Memory;
        } else if !private {
            is_memory = false;
        }
        is_memory &= mapping.mode.starts_with(b"r") && mapping.start <= at;
        at = mapping.end;
    }
    if found == Sharable::Memory && !(is_memory && at >= end) {
        found = Sharable::Mixed;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sharable_memory_is_known_by_its_name() {
        let text = b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/with space\n\
            7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
            7f1000000000-7f1000001000 rw-s 7f1000000000 00:01 42 /memfd:sunder-memory (deleted)\n\
            7f1000001000-7f1000002000 rw-p 7f1000001000 00:01 42 /memfd:sunder-memory (deleted)\n\
            7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0   [stack]\n";
        let converted: Vec<bool> = all(text).map(|m| is_converted(&m)).collect();
        assert_eq!(converted, [false, false, true, false, false]);
    }

    #[test]
    fn memory_in_common_and_input_are_told_from_other_mappings() {
        let text = b"10000-11000 rw-s 00000000 00:01 1 /dev/zero (deleted)\n\
            11000-12000 rw-s 00000000 00:01 2 /memfd:mine (deleted)\n\
            12000-13000 r--s 00000000 08:02 3 /a/file\n\
            13000-14000 rw-s 00000000 00:19 4 /dev/shm/both\n\
            14000-15000 rw-s 00000000 00:05 5 /dev/card0\n\
            15000-16000 rw-s 00015000 00:01 6 /memfd:sunder-memory (deleted)\n\
            16000-17000 rw-s 00000000 00:0d 7 anon_inode:[io_uring]\n\
            17000-18000 rwxs 00000000 00:01 8 /memfd:code (deleted)\n\
            20000-21000 rw-p 00000000 08:02 9 /an/input\n\
            21000-22000 r--p 00000000 08:02 9 /an/input\n\
            22000-23000 rw-p 00000000 00:00 0 \n\
            23000-24000 rw-p 00001000 08:02 10 /lib/late.so\n\
            24000-25000 r-xp 00000000 08:02 10 /lib/late.so\n\
            25000-26000 rw-p 00000000 00:05 11 /dev/card0\n";
        let of = |is: &dyn Fn(&Mapping<'_>) -> bool| {
            let found = all(text).filter(is).map(|m| m.start);
            found.collect::<Vec<_>>()
        };
        assert_eq!(of(&is_common), [0x10000, 0x11000, 0x12000, 0x13000]);
        assert_eq!(of(&|m| may_be_input(text, m)), [0x20000]);
    }

    #[test]
    fn mappings_tell_how_much_of_a_range_is_sharable() {
        let text = b"10000-12000 rw-s 00010000 00:01 42 /memfd:sunder-memory (deleted)\n\
            12000-13000 rw-p 00000000 00:00 0 \n\
            13000-14000 rw-s 00013000 00:01 42 /memfd:sunder-memory (deleted)\n\
            14000-15000 rw-s 00000000 08:02 7 /a/file\n\
            15000-16000 rw-p 00000000 00:00 0 \n\
            18000-19000 rw-s 00018000 00:01 42 /memfd:sunder-memory (deleted)\n\
            19000-1a000 ---s 00019000 00:01 42 /memfd:sunder-memory (deleted)\n\
            1a000-1b000 rw-s 00000000 00:01 43 /memfd:sunder-control (deleted)\n";
        for (start, end, expected) in [
            (0x10000, 0x12000, Sharable::Memory),
            (0x10000, 0x14000, Sharable::Memory),
            (0x11000, 0x12000, Sharable::Memory),
            (0x12000, 0x13000, Sharable::Nothing),
            (0x14000, 0x15000, Sharable::Nothing),
            (0x14000, 0x16000, Sharable::Nothing),
            (0x16000, 0x18000, Sharable::Nothing),
            (0x1a000, 0x1b000, Sharable::Nothing),
            (0x13000, 0x15000, Sharable::Mixed),
            (0x17000, 0x19000, Sharable::Mixed),
            (0x15000, 0x19000, Sharable::Mixed),
            (0x18000, 0x1a000, Sharable::Mixed),
            (0x18000, 0x1c000, Sharable::Mixed),
        ] {
            assert_eq!(sharable(text, start, end), expected, "{start:x}-{end:x}");
        }
    }

    #[test]
    fn the_list_of_this_process_has_this_function() {
        let mut buffer = vec![0; 1 << 20];
        let text = read(&mut buffer).expect("/proc is mounted");
        let here = the_list_of_this_process_has_this_function as *const () as usize;
        let found = all(text).find(|m| (m.start..m.end).contains(&here));
        assert!(found.is_some_and(|m| m.is_executable()));
        assert!(read(&mut [0; 64]).is_none(), "it does not fit");
    }

    #[test]
    fn a_merged_mapping_is_split_into_our_part_and_the_programs() {
        let kept = [[30, 40], [60, 70], [40, 45]];
        let parts = |start, end| outside(start, end, &kept).collect::<Vec<_>>();
        assert_eq!(parts(0, 10), [[0, 10]]);
        assert_eq!(parts(0, 30), [[0, 30]]);
        assert_eq!(parts(20, 35), [[20, 30]]);
        assert_eq!(parts(32, 45), [[0; 2]; 0]);
        assert_eq!(parts(32, 50), [[45, 50]]);
        assert_eq!(parts(0, 100), [[0, 30], [45, 60], [70, 100]]);
        assert_eq!(parts(60, 70), [[0; 2]; 0]);
    }
}
