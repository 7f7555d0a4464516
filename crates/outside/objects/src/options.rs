//! Folders with files, and the way to the target's files. [`crate::Names`] gets them from its
//! caller.

use crate::files::{Files, OwnFiles};
use crate::remembered::Memory;
use std::fs::File;
use std::path::PathBuf;
use std::sync::Arc;

/// Where files are looked for, and how they are opened.
#[derive(Clone, Debug)]
pub struct NameOptions {
    /// Folders of separate debug files, by the target's paths; `/usr/lib/debug` by default.
    pub debug_dirs: Vec<PathBuf>,
    /// Opens the target's files; ours by default.
    pub files: Arc<dyn Files>,
    /// The program's own file, for the time when its path leads to another file or to none.
    pub executable: Option<Arc<File>>,
    /// The folder of ours in which debuginfod's tools keep downloaded files.
    pub debuginfod_cache: Option<PathBuf>,
    /// Keeps what debug information has answered; none by default.
    pub memory: Option<Arc<dyn Memory>>,
    /// Whether debug information is read; it is by default.
    pub debug_information: bool,
}

impl Default for NameOptions {
    fn default() -> Self {
        Self {
            debug_dirs: vec![PathBuf::from("/usr/lib/debug")],
            files: Arc::new(OwnFiles::default()),
            executable: None,
            debuginfod_cache: debuginfod_cache(),
            memory: None,
            debug_information: true,
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
