//! `smaps`: what the kernel says of each mapping beside what `maps` says.

use super::folder::Folder;
use super::maps::parse_mapping;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use sunder_access::Mapping;

/// A mapping with its flags.
#[derive(Clone, Debug, PartialEq)]
pub struct Flagged {
    /// The mapping; none if its first line was not understood.
    pub mapping: Option<Mapping>,
    flags: String,
}

impl Flagged {
    /// Whether it has one of these flags, of two letters each as in proc(5).
    pub fn has_any(&self, flags: &[&str]) -> bool {
        let mut own = self.flags.split_ascii_whitespace();
        own.any(|flag| flags.contains(&flag))
    }
}

/// The mappings of a process or thread of which flags are told, by address. Reads no
/// farther than it is asked to.
///
/// # Errors
/// If they can't be read.
pub fn flagged_of(folder: Folder) -> io::Result<impl Iterator<Item = io::Result<Flagged>>> {
    let file = File::open(folder.path("smaps"))?;
    Ok(flagged(BufReader::new(file).split(b'\n').map(|line| {
        line.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    })))
}

/// The same of lines of text.
pub fn flagged<E>(
    lines: impl Iterator<Item = Result<String, E>>,
) -> impl Iterator<Item = Result<Flagged, E>> {
    let mut mapping = None;
    lines.filter_map(move |line| {
        let line = match line {
            Ok(line) => line,
            Err(error) => return Some(Err(error)),
        };
        if let Some(flags) = line.strip_prefix("VmFlags:") {
            return Some(Ok(Flagged {
                mapping: mapping.take(),
                flags: flags.to_owned(),
            }));
        }
        // The other lines have a name and a colon.
        if let Some(new) = parse_mapping(&line) {
            mapping = Some(new);
        }
        None
    })
}
