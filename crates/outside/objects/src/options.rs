//! Folders with files, and the translation of the target's paths to ours. [`crate::Names`] gets
//! them from its caller.

use std::path::{Path, PathBuf};

/// The folders and paths in which files are looked for.
#[derive(Clone, Debug)]
pub struct NameOptions {
    /// Folders of separate debug files; `/usr/lib/debug` by default.
    pub debug_dirs: Vec<PathBuf>,
    /// The path of the target's root folder in our file system, `/proc/PID/root` for a container;
    /// `None` if it is ours.
    pub root: Option<PathBuf>,
    /// Another path to the program's own file, for the time when its path leads to another file or
    /// to none: `/proc/PID/exe` while it lives.
    pub executable: Option<PathBuf>,
    /// The folder in which debuginfod's tools keep downloaded files.
    pub debuginfod_cache: Option<PathBuf>,
}

impl Default for NameOptions {
    fn default() -> Self {
        Self {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            root: None,
            executable: None,
            debuginfod_cache: debuginfod_cache(),
        }
    }
}

/// The folder that debuginfod's client uses (`debuginfod-find(1)`).
fn debuginfod_cache() -> Option<PathBuf> {
    let path = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    let below = |folder: PathBuf| folder.join("debuginfod_client");
    path("DEBUGINFOD_CACHE_PATH")
        .map(PathBuf::from)
        .or_else(|| Some(below(PathBuf::from(path("XDG_CACHE_HOME")?))))
        .or_else(|| Some(below(PathBuf::from(path("HOME")?).join(".cache"))))
}

impl NameOptions {
    /// The path by which we can open the target's `path`.
    pub(crate) fn rooted(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// The inverse of `rooted`: the path in the target's file system.
    pub(crate) fn unrooted(&self, path: &Path) -> PathBuf {
        let inside = self
            .root
            .as_ref()
            .and_then(|root| path.strip_prefix(root).ok());
        inside.map_or_else(|| path.to_owned(), |p| Path::new("/").join(p))
    }
}
