//! Where files are looked for, and how paths of the target become paths of
//! ours. Given to [`crate::Names`] by its caller.

use std::path::{Path, PathBuf};

/// Where files are looked for.
#[derive(Clone, Debug)]
pub struct NameOptions {
    /// Folders of separate debug files; `/usr/lib/debug` by default.
    pub debug_dirs: Vec<PathBuf>,
    /// The target's root folder as we see it, `/proc/PID/root` for a container;
    /// `None` if it is ours.
    pub root: Option<PathBuf>,
    /// A way to the program's own file that works where its path leads to
    /// another file by now, or to none: `/proc/PID/exe` while it lives.
    pub executable: Option<PathBuf>,
    /// The folder where debuginfod's tools keep what they have fetched.
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

/// As debuginfod's client finds it (`debuginfod-find(1)`).
fn debuginfod_cache() -> Option<PathBuf> {
    let path = |name| std::env::var_os(name).filter(|v| !v.is_empty());
    let below = |folder: PathBuf| folder.join("debuginfod_client");
    path("DEBUGINFOD_CACHE_PATH")
        .map(PathBuf::from)
        .or_else(|| Some(below(PathBuf::from(path("XDG_CACHE_HOME")?))))
        .or_else(|| Some(below(PathBuf::from(path("HOME")?).join(".cache"))))
}

impl NameOptions {
    /// `path` of the target as we can open it.
    pub(crate) fn rooted(&self, path: &Path) -> PathBuf {
        match &self.root {
            Some(root) => root.join(path.strip_prefix("/").unwrap_or(path)),
            None => path.to_owned(),
        }
    }

    /// The inverse of `rooted`: the path as the target knows it.
    pub(crate) fn unrooted(&self, path: &Path) -> PathBuf {
        let inside = self
            .root
            .as_ref()
            .and_then(|root| path.strip_prefix(root).ok());
        inside.map_or_else(|| path.to_owned(), |p| Path::new("/").join(p))
    }
}
