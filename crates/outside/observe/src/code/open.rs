//! Finds the file that a process has mapped, which may be deleted, replaced, or in another mount
//! namespace.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::time::{Duration, SystemTime};
use sunder_access::{Mapping, ProcessId};

/// The file of `mapping`, identified by its inode number.
///
/// Some overlay file systems show other inode numbers in mappings than in `stat`. Their path is
/// trusted only if the process can no longer be read and the file is older than the observation.
pub(super) fn find(process: ProcessId, mapping: &Mapping, begin: SystemTime) -> Option<File> {
    let path = mapping.path.as_str();
    let process = crate::proc::living_number(process);
    let span = mapping.span;
    let places = [
        format!("/proc/{process}/root{path}"),
        path.to_owned(),
        format!(
            "/proc/{process}/map_files/{:x}-{:x}",
            span.start.0,
            span.end().0
        ),
        format!("/proc/{process}/exe"),
    ];
    let mut other = None;
    for (number, place) in places.iter().enumerate() {
        let Some(file) = open(place) else { continue };
        let Ok(metadata) = file.metadata() else {
            continue;
        };
        if metadata.ino() == mapping.inode {
            return Some(file);
        }
        let changed = Duration::from_secs(u64::try_from(metadata.ctime()).unwrap_or(0));
        if number < 2 && other.is_none() && SystemTime::UNIX_EPOCH + changed < begin {
            other = Some(file);
        }
    }
    let readable = super::remote::read(process, span.start, 1).is_some();
    other.filter(|_| !readable)
}

/// Opens a regular file; never waits, as opening a pipe would.
fn open(path: &str) -> Option<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
        .ok()?;
    file.metadata().ok()?.is_file().then_some(file)
}
