//! What can go wrong when a trace is read.

use std::path::PathBuf;

/// Why a trace can't be read. Damage within a sound file is no error: the good
/// part is read and [`crate::read::Summary`] says what is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file can't be opened or read.
    #[error("cannot read {path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not seekable: a pipe or a device.
    #[error("{path} is no regular file; a trace must be one, because it is read in time's order")]
    NotAFile {
        /// Which.
        path: PathBuf,
    },
    /// It has no byte.
    #[error("{path} is empty: nothing was recorded, or the recording was cut off at its start")]
    Empty {
        /// Which.
        path: PathBuf,
    },
    /// It begins with something else.
    #[error("{path} is no trace: it does not begin as one")]
    Foreign {
        /// Which.
        path: PathBuf,
    },
    /// It was written by a newer Sunder.
    #[error(
        "{path} is a trace of version {version}, and this Sunder reads versions up to {newest}; use a newer Sunder"
    )]
    Newer {
        /// Which.
        path: PathBuf,
        /// What it says.
        version: u32,
        /// What we read.
        newest: u32,
    },
    /// The part that says who was recorded is damaged or missing.
    #[error("{path} is cut off or damaged at its start: it has no readable header")]
    NoHeader {
        /// Which.
        path: PathBuf,
    },
}
