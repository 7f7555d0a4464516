//! Why a recording can't be read.

use std::io;

/// Why a recording can't be read. The text is the end of a sentence that begins with the file.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file does not begin as a recording does.
    #[error("it is no recording of sunder detect --record")]
    NotARecording,
    /// Another version of Sunder wrote it.
    #[error(
        "it has version {found} of the format, and this sunder reads version {}: record the program again",
        crate::VERSION
    )]
    Version {
        /// The version in the file.
        found: u32,
    },
    /// The end is missing.
    #[error("its end is missing: the run was killed, or the file was cut")]
    CutShort,
    /// Something in it can't be.
    #[error("it is damaged: {0}")]
    Damaged(String),
    /// The file can't be read.
    #[error("it can't be read: {0}")]
    Io(#[from] io::Error),
}
