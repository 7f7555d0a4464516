//! Why something could not be done.

use std::io;
use std::path::PathBuf;
use sunder_findings::FindingsError;
use sunder_observe::ObserveError;

/// Why something could not be done. Each is one sentence that names the cause.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A program could not be executed.
    #[error("cannot execute {program}: {source}")]
    Execute {
        /// The program, as it was named.
        program: String,
        /// What the kernel said.
        source: io::Error,
    },
    /// There is no such process, or it ended meanwhile.
    #[error("there is no process {0}")]
    NoSuchProcess(u32),
    /// The kernel does not allow what observing needs.
    #[error("{0}")]
    Refused(String),
    /// A file could not be read or written.
    #[error("cannot use {}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// Why not.
        why: String,
    },
    /// Anything else, in a sentence.
    #[error("{0}")]
    Other(String),
}

impl From<anyhow::Error> for Error {
    fn from(error: anyhow::Error) -> Self {
        match error.downcast::<ObserveError>() {
            Ok(error) => error.into(),
            Err(error) => Self::Other(format!("{error:#}")),
        }
    }
}

impl From<ObserveError> for Error {
    fn from(error: ObserveError) -> Self {
        match error {
            ObserveError::Execute { program, source } => Self::Execute { program, source },
            ObserveError::NoSuchProcess(process) => Self::NoSuchProcess(process.0),
            refused @ ObserveError::PerfRefused(_) => Self::Refused(refused.to_string()),
            other => Self::Other(other.to_string()),
        }
    }
}

impl Error {
    /// The result in a file can't be used.
    pub(crate) fn of_file(path: &std::path::Path, error: &FindingsError) -> Self {
        Self::File {
            path: path.to_owned(),
            why: error.to_string(),
        }
    }
}
