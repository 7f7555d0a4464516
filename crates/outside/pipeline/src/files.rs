//! The files of observed processes: how names open them, and those that are held open from which
//! the code of living processes was mapped. Names are looked up after the target has ended, and by
//! then a package manager or a build may have replaced a file. Fed by `session`; it must not read
//! the files.

use crate::kept::{identity, key};
use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use sunder_access::{Mapping, Mappings};
use sunder_objects::{Names, file_name_of};
use sunder_observe::foreign::ForeignFiles;
use sunder_recording as recording;

/// The most files that are held; each takes a descriptor.
const MOST_HELD: usize = 128;

/// The files of a process, as its names open them.
#[derive(Clone, Debug)]
pub struct TargetFiles(pub Arc<ForeignFiles>);

impl sunder_objects::Files for TargetFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        self.0.open(path)
    }

    fn open_source(&self, name: &Path) -> io::Result<File> {
        self.0.open_source(name)
    }

    fn names_in(&self, folder: &Path, most: usize) -> io::Result<Vec<OsString>> {
        self.0.names_in(folder, most)
    }
}

/// The files that are held open.
#[derive(Default)]
pub struct HeldFiles {
    /// By path and inode; `None` for a file that is read by its path later.
    held: HashMap<(String, u64), Option<Held>>,
}

enum Held {
    Open(Arc<File>),
    /// The file was deleted or replaced, and the kernel refuses access to its mapping.
    Refused,
}

impl HeldFiles {
    /// Holds the files of the code that a process has mapped, and gives them to `names`.
    pub fn hold(&mut self, files: &ForeignFiles, mappings: &Mappings, names: &mut Names) {
        for mapping in mappings.iter().filter(|m| m.is_file() && m.execute) {
            let key = (file_name_of(mapping).to_owned(), mapping.inode);
            if !self.held.contains_key(&key) && self.held.len() < MOST_HELD {
                self.held.insert(key.clone(), open(files, mapping));
            }
            let file = match self.held.get(&key) {
                Some(Some(Held::Open(file))) => Some(Arc::clone(file)),
                Some(Some(Held::Refused)) => None,
                _ => continue,
            };
            names.set_file(mapping, file);
        }
    }
}

impl HeldFiles {
    /// What tells the file of `mapping` from others with its path; `files` are those of the process.
    pub fn identity_of(&self, files: &ForeignFiles, mapping: &Mapping) -> Option<recording::File> {
        let found = match self.held.get(&key(mapping)) {
            Some(Some(Held::Open(file))) => identity(file),
            Some(Some(Held::Refused)) => None,
            _ => identity(&files.open(Path::new(&mapping.path)).ok()?),
        };
        Some(found?.of(mapping))
    }
}

/// Opens the file of `mapping`. `None` if it has to be read by its path later.
fn open(files: &ForeignFiles, mapping: &Mapping) -> Option<Held> {
    let deleted = file_name_of(mapping) != mapping.path;
    let by_path = || files.open(Path::new(&mapping.path)).ok();
    if let Some(file) = by_path().filter(|_| !deleted) {
        let found = file.metadata().ok()?;
        if found.ino() == mapping.inode {
            return Some(Held::Open(Arc::new(file)));
        }
        // On overlay file systems the two inode numbers of one file may differ.
        if found.dev() >> 8 & 0xfff == 0 {
            return None;
        }
    } else if !deleted && !files.is_alive() {
        return None;
    }
    match files.linked(mapping) {
        Ok(file) => Some(Held::Open(Arc::new(file))),
        // The mapping or the process is gone.
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(_) => Some(Held::Refused),
    }
}
