//! Errors of reading a trace.

use std::path::PathBuf;

/// Why a trace can't be read. Damage inside of a valid file is no error: the undamaged part is
/// read, and [`crate::read::Summary`] says what is missing.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TraceError {
    /// The file can't be opened or read.
    #[error("cannot read {path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of opening or reading it.
        source: std::io::Error,
    },
    /// The file is not seekable: a pipe or a device.
    #[error("{path} is no regular file; a trace must be one, because it is read in time's order")]
    NotAFile {
        /// The file.
        path: PathBuf,
    },
    /// The file is empty.
    #[error("{path} is empty: nothing was recorded, or the recording was cut off at its start")]
    Empty {
        /// The file.
        path: PathBuf,
    },
    /// The file does not begin with the magic bytes of a trace.
    #[error("{path} is no trace: it does not begin as one")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The file was written by a newer Sunder.
    #[error(
        "{path} is a trace of version {version}, and this Sunder reads versions up to {newest}; use a newer Sunder"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version in the file.
        version: u32,
        /// The newest version that this program reads.
        newest: u32,
    },
    /// A number in the file can't be right, although the checksums are.
    #[error("{path} can't be used, as no recorder writes such a trace: at byte {offset}, {what}")]
    Absurd {
        /// The file.
        path: PathBuf,
        /// Where the block with the number begins.
        offset: u64,
        /// What is wrong.
        what: String,
    },
    /// The header, which names the recorded program, is damaged or missing.
    #[error("{path} is cut off or damaged at its start: it has no readable header")]
    NoHeader {
        /// The file.
        path: PathBuf,
    },
}
