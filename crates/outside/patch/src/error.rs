//! What goes wrong: either nothing can be done at all ([`PatchError`]), or for one finding no
//! change is certain to be right ([`Unsure`], which is an answer and no failure).

use std::path::PathBuf;

/// Why no patch can be made or tried.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PatchError {
    /// A file or folder can't be used.
    #[error("cannot use {}: {source}", path.display())]
    File {
        /// The file or folder.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// The folder is the one with all files of the machine.
    #[error("/ is no program's own folder: say with --root which folder has its sources")]
    WholeMachine,
    /// A program of the system can't be started.
    #[error("cannot start {program}: {source}")]
    Start {
        /// The program.
        program: String,
        /// What the system said.
        source: std::io::Error,
    },
    /// A grammar can't be loaded: it was built for another version of the parser.
    #[error("the grammar of {0} does not fit the parser")]
    Grammar(&'static str),
    /// The folder's own build or run fails, before any change.
    #[error("without any change, {0}")]
    Baseline(String),
}

/// Why there is no change that is certain to be right: a sentence without its period.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsure(pub String);

impl Unsure {
    pub(crate) fn new(why: impl Into<String>) -> Self {
        Self(why.into())
    }
}

/// Returns early with [`Unsure`].
macro_rules! unsure {
    ($($text:tt)*) => {
        return Err($crate::error::Unsure::new(format!($($text)*)))
    };
}
pub(crate) use unsure;
