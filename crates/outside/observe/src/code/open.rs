//! Finds the file that a process has mapped, which may be deleted, replaced, or in another mount
//! namespace.

use crate::foreign::ForeignFiles;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, SystemTime};
use sunder_access::{Mapping, ProcessId};

/// The file of `mapping`, identified by its inode number. `living` is the process, unless it is one
/// of a recording.
///
/// Some overlay file systems show other inode numbers in mappings than in `stat`. Their path is
/// trusted only if the process can no longer be read and the file is older than the observation.
pub(super) fn find(
    files: &ForeignFiles,
    living: Option<ProcessId>,
    mapping: &Mapping,
    begin: SystemTime,
) -> Option<File> {
    let path = mapping.path.as_str();
    let places: [&dyn Fn() -> io::Result<File>; 3] = [
        &|| files.open(Path::new(path)),
        &|| files.linked(mapping),
        &|| files.executable(),
    ];
    let mut other = None;
    for (number, open) in places.iter().enumerate() {
        let Ok(file) = open() else { continue };
        let Ok(metadata) = file.metadata() else {
            continue;
        };
        if metadata.ino() == mapping.inode {
            return Some(file);
        }
        let changed = Duration::from_secs(u64::try_from(metadata.ctime()).unwrap_or(0));
        if number == 0 && other.is_none() && SystemTime::UNIX_EPOCH + changed < begin {
            other = Some(file);
        }
    }
    let readable =
        living.is_some_and(|process| crate::remote::read(process, mapping.span.start, 1).is_some());
    other.filter(|_| !readable)
}
