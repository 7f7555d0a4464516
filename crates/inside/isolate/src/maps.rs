//! The list of mappings, as the kernel writes it. Pure, but for [`read`]. Contexts:
//! all, as long as the C library's code may be executed (slices are compared).

use crate::system;
use sunder_wire::isolation::MEMORY_NAME;

/// One mapping.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// First byte.
    pub start: usize,
    /// The byte after the last.
    pub end: usize,
    /// `rwxp`, as written.
    pub mode: [u8; 4],
    /// Where in the file it begins.
    pub offset: usize,
    /// The file's path or a name in brackets; empty for anonymous memory.
    pub name: &'a [u8],
}

impl Mapping<'_> {
    /// Whether it may be written.
    pub const fn is_writable(&self) -> bool {
        self.mode[1] == b'w'
    }

    /// Whether it may be executed.
    pub const fn is_executable(&self) -> bool {
        self.mode[2] == b'x'
    }

    /// Whether stores are private to the process.
    pub const fn is_private(&self) -> bool {
        self.mode[3] == b'p'
    }

    /// Whether it is the program's memory, made sharable.
    pub fn is_converted(&self) -> bool {
        let name = self.name.strip_prefix(b"/memfd:").unwrap_or_default();
        !self.is_private() && name.starts_with(MEMORY_NAME.as_bytes())
    }

    /// Whether it is a file's.
    pub fn is_of_file(&self) -> bool {
        self.name.first() == Some(&b'/')
    }
}

/// The parts of a range that lie in none of `kept`, from low to high: the kernel takes memory of the
/// program's for one mapping with ours beside it if it can.
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

/// Reads the list (by way of the thread: the process's first one may have ended) into `buffer`; what of it, or `None` if it does not fit or can't be read to its end.
pub fn read(buffer: &mut [u8]) -> Option<&[u8]> {
    // SAFETY: a C string.
    let fd = unsafe { system::open(c"/proc/thread-self/maps".as_ptr().cast(), false) }?;
    let length = read_to_end(fd, buffer);
    system::close(fd);
    length.and_then(|length| buffer.get(..length))
}

/// How many bytes there are. An error is not their end: who takes half a list for all of it
/// does not know what memory there is.
fn read_to_end(fd: i32, buffer: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|r| !r.is_empty()) {
        let arguments = [fd as usize, rest.as_mut_ptr() as usize, rest.len(), 0, 0, 0];
        // SAFETY: the buffer is valid for its length.
        let more = unsafe { system::call(libc::SYS_read, arguments) };
        match usize::try_from(more) {
            Ok(0) => return (length > 0).then_some(length),
            Ok(more) => length += more,
            Err(_) => return None,
        }
    }
    None
}

/// The mappings of such a list.
pub fn all(text: &[u8]) -> impl Iterator<Item = Mapping<'_>> {
    let mut rest = text;
    core::iter::from_fn(move || {
        while !rest.is_empty() {
            let end = rest.iter().position(|b| *b == b'\n').unwrap_or(rest.len());
            let (line, more) = rest.split_at_checked(end)?;
            rest = more.get(1..).unwrap_or_default();
            if let Some(mapping) = parse(line) {
                return Some(mapping);
            }
        }
        None
    })
}

/// What of a range is the program's memory, made sharable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharable {
    /// None of it: the range is none of our business.
    Nothing,
    /// It, and nothing but private anonymous memory beside it; all of this can be read.
    Memory,
    /// It, and other things, or holes.
    Mixed,
}

/// The same by such a list.
pub fn sharable(text: &[u8], start: usize, end: usize) -> Sharable {
    let mut found = Sharable::Nothing;
    let mut at = start;
    let mut is_memory = true;
    for mapping in all(text).filter(|m| m.start < end && start < m.end) {
        // Not the kernel's own pages either.
        let private =
            mapping.is_private() && !mapping.is_of_file() && !mapping.name.starts_with(b"[v");
        if mapping.is_converted() {
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

fn parse(line: &[u8]) -> Option<Mapping<'_>> {
    let mut at = Cursor(line);
    let start = at.hexadecimal()?;
    at.expect(b'-')?;
    let end = at.hexadecimal()?;
    at.expect(b' ')?;
    let mode: [u8; 4] = at.0.first_chunk().copied()?;
    at.0 = at.0.get(5..)?;
    let offset = at.hexadecimal()?;
    at.expect(b' ')?;
    // Device and inode.
    for _ in 0..2 {
        let space = at.0.iter().position(|b| *b == b' ').unwrap_or(at.0.len());
        at.0 = at.0.get(space + 1..).unwrap_or_default();
    }
    let name = at.0.iter().position(|b| *b != b' ').unwrap_or(at.0.len());
    Some(Mapping {
        start,
        end,
        mode,
        offset,
        name: at.0.get(name..).unwrap_or_default(),
    })
}

struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn expect(&mut self, byte: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        (*first == byte).then_some(())
    }

    fn hexadecimal(&mut self) -> Option<usize> {
        let mut value = 0usize;
        let mut digits = 0;
        while let Some((first, rest)) = self.0.split_first() {
            let Some(digit) = (*first as char).to_digit(16) else {
                break;
            };
            value = value << 4 | digit as usize;
            digits += 1;
            self.0 = rest;
        }
        (digits > 0).then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_every_kind_are_read() {
        let text = b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/with space\n\
            7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
            7f1000000000-7f1000001000 rw-s 7f1000000000 00:01 42 /memfd:sunder-memory (deleted)\n\
            7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0   [stack]\n";
        let all: Vec<Mapping<'_>> = all(text).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(
            (all[0].start, all[0].end, all[0].offset),
            (0x40_0000, 0x45_2000, 0x1000)
        );
        assert_eq!(all[0].name, b"/usr/bin/with space");
        assert!(all[0].is_executable() && !all[0].is_writable() && all[0].is_private());
        assert!(all[1].name.is_empty() && all[1].is_writable());
        assert!(all[2].is_converted() && all[2].offset == all[2].start);
        assert_eq!(all[3].name, b"[stack]");
        assert!(!all[3].is_converted() && !all[3].is_of_file());
    }

    #[test]
    fn what_of_a_range_is_sharable_is_told_by_its_mappings() {
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
    fn what_lies_beside_ours_in_one_mapping_is_the_programs() {
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

    #[test]
    fn a_list_that_ends_with_an_error_is_none() {
        let mut ends = [0; 2];
        // SAFETY: a valid place for two descriptors, which are closed below.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        assert_eq!(made, 0);
        let [out, into] = ends;
        let mut buffer = [0; 64];
        let write = || {
            // SAFETY: four bytes of a constant.
            assert_eq!(unsafe { libc::write(into, c"line".as_ptr().cast(), 4) }, 4);
        };
        write();
        // There are bytes, and then there may come more: EAGAIN.
        assert_eq!(read_to_end(out, &mut buffer), None);
        write();
        system::close(into);
        assert_eq!(read_to_end(out, &mut buffer), Some(4));
        assert_eq!(read_to_end(out, &mut buffer), None, "nothing is no list");
        system::close(out);
    }
}
