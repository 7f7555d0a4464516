//! `maps`: what is mapped where.

use super::folder::{Folder, read};
use super::living_number;
use crate::ObserveError;
use std::io;
use sunder_access::{Address, Mapping, Mappings, ProcessId, Span};

/// What is mapped where.
///
/// # Errors
/// If the process is gone or is not ours to look into.
pub fn mappings(process: ProcessId) -> Result<Mappings, ObserveError> {
    let mut text = read(process, "maps")?;
    if text.is_empty() {
        text = read(living_number(process), "maps")?;
    }
    Ok(parse_mappings(&text))
}

/// What `maps` of one folder says, which is nothing if its thread has ended.
///
/// # Errors
/// If it can't be read.
pub fn mappings_in(folder: Folder) -> io::Result<Mappings> {
    let _reading = folder.reading();
    Ok(parse_mappings(&std::fs::read(folder.path("maps"))?))
}

/// Parses the text of `/proc/PID/maps`; lines that are not laid out as
/// documented are left out.
pub fn parse_mappings(text: &[u8]) -> Mappings {
    text.split(|&byte| byte == b'\n')
        .filter_map(|line| parse_mapping(&String::from_utf8_lossy(line)))
        .collect()
}

/// One line; also the first of each mapping in `smaps`.
pub(super) fn parse_mapping(line: &str) -> Option<Mapping> {
    // start-end rights offset device inode [spaces path]
    let mut fields = line.splitn(6, ' ');
    let (start, end) = fields.next()?.split_once('-')?;
    let start = u64::from_str_radix(start, 16).ok()?;
    let end = u64::from_str_radix(end, 16).ok()?;
    let rights = fields.next()?.as_bytes();
    let file_offset = u64::from_str_radix(fields.next()?, 16).ok()?;
    let _device = fields.next()?;
    let inode = fields.next()?.parse().ok()?;
    let path = fields.next().unwrap_or("").trim_start_matches(' ');
    Some(Mapping {
        span: Span::new(Address(start), end.checked_sub(start)?),
        file_offset,
        path: unescape(path),
        inode,
        read: rights.first() == Some(&b'r'),
        write: rights.get(1) == Some(&b'w'),
        execute: rights.get(2) == Some(&b'x'),
        shared: rights.get(3) == Some(&b's'),
    })
}

/// The kernel writes a newline in a path as `\012`, and nothing else so
/// (`show_map_vma`: `seq_path` with "\n").
fn unescape(path: &str) -> String {
    path.replace("\\012", "\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maps_of_the_manual_are_understood() {
        let text = b"00400000-00452000 r-xp 00001000 08:02 173521      /usr/bin/dbus daemon\n\
            00e03000-00e24000 rw-p 00000000 00:00 0           [heap]\n\
            35b1dac000-35b1dad000 rw-s 001ac000 08:02 99 /tmp/a\\012b (deleted)\n\
            7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n\
            garbage\n";
        let all = parse_mappings(text);
        let seen: Vec<_> = all.iter().collect();
        assert_eq!(seen.len(), 4);
        assert_eq!(seen[0].span, Span::new(Address(0x40_0000), 0x5_2000));
        assert_eq!((seen[0].file_offset, seen[0].inode), (0x1000, 173_521));
        assert_eq!(seen[0].path, "/usr/bin/dbus daemon");
        assert!(seen[0].read && !seen[0].write && seen[0].execute && !seen[0].shared);
        assert_eq!(seen[1].path, "[heap]");
        assert!(!seen[1].is_file());
        assert_eq!(seen[2].path, "/tmp/a\nb (deleted)");
        assert!(seen[2].shared && seen[2].write);
        assert_eq!(seen[3].path, "");
        assert!(!seen[3].read);
    }
}
