//! How files are opened that the program or its debug information names. [`crate::Names`] gets
//! this from its caller, because what may be opened depends on whose program it is.

use std::ffi::OsString;
use std::fmt::Debug;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

/// Opens files by the paths that the program has for them.
pub trait Files: Debug + Send + Sync {
    /// Opens a regular file.
    ///
    /// # Errors
    /// If there is none, or it may not be read.
    fn open(&self, path: &Path) -> io::Result<File>;

    /// Opens a source file by the name that debug information has for it, which may be relative.
    ///
    /// # Errors
    /// As [`Self::open`].
    fn open_source(&self, name: &Path) -> io::Result<File> {
        self.open(name)
    }

    /// The first names in a folder, `most` at most: whoever made it may have put millions there.
    ///
    /// # Errors
    /// If there is no such folder, or it may not be read.
    fn names_in(&self, folder: &Path, most: usize) -> io::Result<Vec<OsString>>;
}

/// Files below a folder of ours, opened with our own rights: for programs of our own, and for
/// copies of a file system.
#[derive(Clone, Debug)]
pub struct OwnFiles {
    /// The folder that is the program's root.
    pub root: PathBuf,
}

impl Default for OwnFiles {
    fn default() -> Self {
        Self {
            root: PathBuf::from("/"),
        }
    }
}

impl OwnFiles {
    fn path(&self, path: &Path) -> PathBuf {
        match path.strip_prefix("/") {
            Ok(below) => self.root.join(below),
            Err(_) => path.to_owned(),
        }
    }
}

impl Files for OwnFiles {
    fn open(&self, path: &Path) -> io::Result<File> {
        let path = self.path(path);
        // Opening a device or a pipe could wait, or do something.
        if !std::fs::metadata(&path)?.is_file() {
            return Err(io::Error::other("not a regular file"));
        }
        File::open(path)
    }

    fn names_in(&self, folder: &Path, most: usize) -> io::Result<Vec<OsString>> {
        let entries = std::fs::read_dir(self.path(folder))?.take(most);
        entries.map(|entry| Ok(entry?.file_name())).collect()
    }
}
