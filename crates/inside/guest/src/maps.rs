//! The list of mappings, as the kernel writes it in `/proc/self/maps`. No memory is allocated:
//! lines are parsed in place, in the caller's buffer. Contexts: all, as long as the C library's
//! code may be executed (slices are compared).

use crate::system;
use core::ops::ControlFlow;

/// The list of the calling process.
pub const OF_PROCESS: &core::ffi::CStr = c"/proc/self/maps";
/// The same list through the calling thread. The process's first thread may have ended, and then
/// [`OF_PROCESS`] is empty.
pub const OF_THREAD: &core::ffi::CStr = c"/proc/thread-self/maps";

/// One mapping.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// The address of the first byte.
    pub start: usize,
    /// The address after the last byte.
    pub end: usize,
    /// The rights as the kernel writes them, `rwxp`.
    pub mode: [u8; 4],
    /// The offset in the file.
    pub offset: usize,
    /// The file's path, or a name in brackets; empty for anonymous memory.
    pub name: &'a [u8],
}

impl Mapping<'_> {
    /// Whether it can be read, written or executed.
    #[must_use]
    pub const fn is_accessible(&self) -> bool {
        self.mode[0] == b'r' || self.is_writable() || self.is_executable()
    }

    /// Whether it can be written.
    #[must_use]
    pub const fn is_writable(&self) -> bool {
        self.mode[1] == b'w'
    }

    /// Whether it can be executed.
    #[must_use]
    pub const fn is_executable(&self) -> bool {
        self.mode[2] == b'x'
    }

    /// Whether stores are private to the process.
    #[must_use]
    pub const fn is_private(&self) -> bool {
        self.mode[3] == b'p'
    }

    /// Whether it maps a file.
    #[must_use]
    pub fn is_of_file(&self) -> bool {
        self.name.first() == Some(&b'/')
    }

    /// Whether it contains this address.
    #[must_use]
    pub fn contains(&self, address: usize) -> bool {
        (self.start..self.end).contains(&address)
    }
}

/// Opens [`OF_PROCESS`] or [`OF_THREAD`]; the caller closes the descriptor.
#[must_use]
pub fn open(list: &core::ffi::CStr) -> Option<i32> {
    // SAFETY: a C string.
    unsafe { system::open(libc::AT_FDCWD, list.as_ptr().cast(), libc::O_RDONLY) }
}

/// Calls `act` with each mapping until it breaks, while they are read from `fd` into `buffer`. The
/// name in a line that is longer than the buffer is cut off. False if the list could not be read to
/// its end.
pub fn stream(
    fd: i32,
    buffer: &mut [u8],
    mut act: impl FnMut(&Mapping<'_>) -> ControlFlow<()>,
) -> bool {
    // The number of bytes used in the buffer, and whether a line was cut off and continues.
    let (mut used, mut is_cut) = (0, false);
    loop {
        let Some(rest) = buffer.get_mut(used..) else {
            return false;
        };
        let read = match usize::try_from(system::read(fd, rest)) {
            Ok(0) => return true,
            Ok(read) => read,
            Err(_) => return false,
        };
        used += read;
        let mut text = buffer.get(..used).unwrap_or_default();
        while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
            let (line, more) = text.split_at(end);
            text = more.get(1..).unwrap_or_default();
            if !core::mem::take(&mut is_cut)
                && let Some(mapping) = parse(line)
                && act(&mapping).is_break()
            {
                return true;
            }
        }
        let left = text.len();
        if left == buffer.len() || is_cut {
            if !is_cut
                && let Some(mapping) = parse(text)
                && act(&mapping).is_break()
            {
                return true;
            }
            is_cut = true;
            used = 0;
        } else {
            buffer.copy_within(used - left..used, 0);
            used = left;
        }
    }
}

/// Reads a whole list from `fd` into `buffer` and returns its length in bytes. `None` if it does
/// not fit or can't be read to its end: half a list would show memory as free that is not.
pub fn read_to_end(fd: i32, buffer: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    while let Some(rest) = buffer.get_mut(length..).filter(|r| !r.is_empty()) {
        match usize::try_from(system::read(fd, rest)) {
            Ok(0) => return (length > 0).then_some(length),
            Ok(more) => length += more,
            Err(_) => return None,
        }
    }
    None
}

/// The mappings of a list that was read.
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
    // Skips device and inode.
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

    /// The list of this process, opened.
    fn own() -> i32 {
        open(OF_PROCESS).expect("/proc is mounted")
    }

    /// A pipe with these bytes in it: the descriptor to read from, and the one to write to.
    fn pipe(bytes: &[u8]) -> [i32; 2] {
        let mut ends = [0; 2];
        // SAFETY: a valid place for two descriptors.
        let made = unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) };
        assert_eq!(made, 0);
        system::write_all(ends[1], bytes);
        ends
    }

    #[test]
    fn lines_of_every_kind_are_read() {
        let text = b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/with space\n\
            7f0000000000-7f0000021000 rw-p 00000000 00:00 0 \n\
            7f1000000000-7f1000001000 ---s 7f1000000000 00:01 42 /memfd:a (deleted)\n\
            7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0   [stack]\n";
        let all: Vec<Mapping<'_>> = all(text).collect();
        assert_eq!(all.len(), 4);
        assert_eq!(
            (all[0].start, all[0].end, all[0].offset),
            (0x40_0000, 0x45_2000, 0x1000)
        );
        assert_eq!(all[0].name, b"/usr/bin/with space");
        assert!(all[0].contains(0x45_1fff) && !all[0].contains(0x45_2000));
        assert!(all[0].is_executable() && !all[0].is_writable() && all[0].is_private());
        assert!(all[1].name.is_empty() && all[1].is_writable() && !all[1].is_of_file());
        assert!(all[2].is_of_file() && all[2].offset == all[2].start);
        assert!(!all[2].is_accessible() && all[1].is_accessible());
        assert_eq!(all[3].name, b"[stack]");
        assert!(!all[3].is_of_file());
    }

    #[test]
    fn the_list_of_this_process_has_this_function() {
        let here = the_list_of_this_process_has_this_function as *const () as usize;
        let (fd, mut found) = (own(), None);
        let whole = stream(fd, &mut [0; 512], |mapping| {
            if mapping.contains(here) {
                found = Some(mapping.is_executable());
                return ControlFlow::Break(());
            }
            ControlFlow::Continue(())
        });
        system::close(fd);
        assert_eq!((whole, found), (true, Some(true)));
        let (fd, mut buffer) = (own(), vec![0; 1 << 20]);
        let length = read_to_end(fd, &mut buffer).expect("it fits");
        assert!(all(&buffer[..length]).any(|mapping| mapping.contains(here)));
        system::close(fd);
        let fd = own();
        assert_eq!(read_to_end(fd, &mut [0; 64]), None, "it does not fit");
        system::close(fd);
    }

    #[test]
    fn a_stream_gives_what_the_whole_list_gives_whatever_the_buffer() {
        let long = format!("5000-6000 r--p 00000000 00:00 0 /{}\n", "x".repeat(300));
        let text = format!(
            "1000-2000 rw-p 00000000 00:00 0 /a\n{long}2000-3000 r-xp 00000000 00:00 0 \n{long}"
        );
        let expected: Vec<_> = all(text.as_bytes()).map(|m| (m.start, m.end)).collect();
        assert_eq!(expected.len(), 4);
        for bytes in 64..400 {
            let ends = pipe(text.as_bytes());
            system::close(ends[1]);
            let mut given = Vec::new();
            let whole = stream(ends[0], &mut vec![0; bytes], |mapping| {
                assert!(mapping.name.is_empty() || mapping.name.starts_with(b"/"));
                given.push((mapping.start, mapping.end));
                ControlFlow::Continue(())
            });
            system::close(ends[0]);
            assert_eq!((whole, given), (true, expected.clone()), "{bytes}");
        }
    }

    #[test]
    fn a_list_that_ends_with_an_error_is_none() {
        let mut buffer = [0; 64];
        let [out, into] = pipe(b"line");
        // There are bytes, and more may come later: EAGAIN.
        assert_eq!(read_to_end(out, &mut buffer), None);
        system::write_all(into, b"line");
        assert!(!stream(out, &mut buffer, |_| ControlFlow::Continue(())));
        system::write_all(into, b"line");
        system::close(into);
        assert_eq!(read_to_end(out, &mut buffer), Some(4));
        assert_eq!(
            read_to_end(out, &mut buffer),
            None,
            "an empty pipe has no list"
        );
        system::close(out);
    }
}
