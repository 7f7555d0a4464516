//! The files that a kept run had mapped. Their names are read from the files that have their paths
//! now, if these are still the same: with the same build-id, or without one with the same length and
//! time of modification.

use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use sunder_access::{Mapping, Mappings};
use sunder_objects::{Files, Names, OwnFiles, build_facts, file_name_of};
use sunder_recording as recording;

/// A file, open.
type OpenFile = Arc<File>;

/// The files by path and inode number; `None` for one that is another by now.
#[derive(Debug, Default)]
pub struct KeptFiles(HashMap<(String, u64), Option<OpenFile>>);

/// The most files that are held; each takes a descriptor.
const MOST: usize = 512;

impl KeptFiles {
    /// Opens `file`, if it still is the recorded one.
    pub fn add(&mut self, file: &recording::File) {
        if self.0.len() >= MOST {
            return;
        }
        let key = (file.path.clone(), file.inode);
        let found = OwnFiles::default().open(Path::new(&file.path)).ok();
        let same = found.filter(|found| identity(found).is_some_and(|now| now.is_of(file)));
        self.0.insert(key, same.map(Arc::new));
    }

    /// Gives the files of the code in `mappings` to `names`.
    pub fn give(&self, mappings: &Mappings, names: &mut Names) {
        for mapping in mappings.iter().filter(|m| m.is_file() && m.execute) {
            if let Some(file) = self.0.get(&key(mapping)) {
                names.set_file(mapping, file.clone());
            }
        }
    }
}

/// What tells a file from another with its path.
#[derive(Debug)]
pub struct Identity {
    build_id: Option<String>,
    len: u64,
    modified: (i64, i64),
}

impl Identity {
    fn is_of(&self, file: &recording::File) -> bool {
        match (&self.build_id, &file.build_id) {
            (Some(now), Some(then)) => now == then,
            (None, None) => self.len == file.len && self.modified == file.modified,
            _ => false,
        }
    }

    /// As a step of a recording, for the file of `mapping`.
    pub fn of(self, mapping: &Mapping) -> recording::File {
        let (path, inode) = key(mapping);
        recording::File {
            path,
            inode,
            build_id: self.build_id,
            len: self.len,
            modified: self.modified,
        }
    }
}

/// What tells `file` from others; `None` if it can't be read.
pub fn identity(file: &File) -> Option<Identity> {
    let about = file.metadata().ok()?;
    Some(Identity {
        build_id: build_facts(file.try_clone().ok()?).build_id,
        len: about.len(),
        modified: (about.mtime(), about.mtime_nsec()),
    })
}

/// By what a mapping's file is known.
pub fn key(mapping: &Mapping) -> (String, u64) {
    (file_name_of(mapping).to_owned(), mapping.inode)
}
