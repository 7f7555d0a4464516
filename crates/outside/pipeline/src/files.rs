//! Holds the files open from which the code of living processes was mapped. Names are looked up
//! after the target has ended, and by then a package manager or a build may have replaced a
//! file. Fed by `session`; it must not read the files.

use std::collections::HashMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use sunder_access::{Mapping, Mappings, ProcessId};
use sunder_objects::{Names, file_name_of};
use sunder_observe::proc;

/// The most files that are held; each takes a descriptor.
const MOST_HELD: usize = 128;

/// The files that are held open.
#[derive(Default)]
pub struct Files {
    /// By path and inode; `None` for a file that is read by its path later.
    held: HashMap<(String, u64), Option<Held>>,
}

enum Held {
    Open(File),
    /// The file was deleted or replaced, and the kernel refuses access to its mapping.
    Refused,
}

impl Files {
    /// Holds the files of the code that `process` has mapped, and tells `names` how to read
    /// each.
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

/// Opens the file of `mapping`. `None` if it has to be read by its path later.
fn open(process: ProcessId, mapping: &Mapping) -> Option<Held> {
    let deleted = file_name_of(mapping) != mapping.path;
    let process = proc::living_number(process);
    let by_path = || File::open(format!("/proc/{process}/root{}", mapping.path)).ok();
    if let Some(file) = by_path().filter(|_| !deleted) {
        let found = file.metadata().ok()?;
        if found.ino() == mapping.inode {
            return Some(Held::Open(file));
        }
        // On overlay file systems the two inode numbers of one file may differ.
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
        // The mapping or the process is gone.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
        Err(_) => Some(Held::Refused),
    }
}
