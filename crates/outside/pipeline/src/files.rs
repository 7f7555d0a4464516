//! The files that the code of living processes came from, held open from when
//! they were first seen: names are looked up after the target has ended, and by
//! then a package manager or a build may have replaced them. Fed by `session`;
//! must not read what is in them.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use sunder_access::{Mapping, Mappings, ProcessId};
use sunder_objects::{Names, file_name_of};
use sunder_observe::proc;

/// Files that are held at most; each takes a descriptor.
const MOST_HELD: usize = 128;

/// See the module's head.
#[derive(Default)]
pub struct Files {
    /// By path and inode; `None` for files that are left alone.
    held: HashMap<(String, u64), Option<Held>>,
}

enum Held {
    Open(File),
    /// It is gone, and the kernel does not let us have it.
    Refused,
}

impl Files {
    /// Holds the files of code that `process` has mapped, and tells `names` the
    /// way to each.
    pub fn hold(&mut self, process: ProcessId, mappings: &Mappings, names: &mut Names) {
        for mapping in mappings.iter().filter(|m| m.is_file() && m.execute) {
            let key = (file_name_of(mapping).to_owned(), mapping.inode);
            if !self.held.contains_key(&key) && self.held.len() < MOST_HELD {
                self.held.insert(key.clone(), open(process, mapping));
            }
            let way = match self.held.get(&key) {
                Some(Some(Held::Open(file))) => {
                    Some(PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd())))
                }
                Some(Some(Held::Refused)) => None,
                _ => continue,
            };
            names.set_way(mapping, way);
        }
    }
}

/// The file that `mapping` is of, if it can be had; `None` if the path must do.
fn open(process: ProcessId, mapping: &Mapping) -> Option<Held> {
    let deleted = file_name_of(mapping) != mapping.path;
    let process = proc::living_number(process);
    let by_path = || File::open(format!("/proc/{process}/root{}", mapping.path)).ok();
    if let Some(file) = by_path().filter(|_| !deleted) {
        let found = file.metadata().ok()?;
        if found.ino() == mapping.inode {
            return Some(Held::Open(file));
        }
        // On overlays the two numbers may differ for the same file.
        if found.dev() >> 8 & 0xfff == 0 {
            return None;
        }
    } else if !deleted && !std::path::Path::new(&format!("/proc/{process}")).exists() {
        return None;
    }
    let (start, end) = (mapping.span.start.0, mapping.span.end().0);
    let way = format!("/proc/{process}/map_files/{start:x}-{end:x}");
    match File::open(way) {
        Ok(file) => Some(Held::Open(file)),
        // The mapping or the process went away meanwhile.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => Some(Held::Refused),
    }
}
