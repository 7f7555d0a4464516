//! Why a result can't be read or written. Used by `file` and its header; decides nothing.

use crate::schema::VERSION;
use std::io;
use std::path::PathBuf;

/// The largest file that [`Findings::read`](crate::Findings::read) takes, in bytes. Results have some kilobytes for
/// each finding, so a larger file is something else; and reading a device such as `/dev/zero`
/// must end.
pub const LARGEST_FILE: u64 = 256 << 20;

/// The error of reading or writing a result. Each sentence tells what to do next, if there is
/// something to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FindingsError {
    /// The file could not be opened.
    #[error("cannot open {}: {source}", path.display())]
    Open {
        /// The file's path.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// Reading failed before the end.
    #[error("cannot read the result: {0}")]
    Read(#[source] io::Error),
    /// Writing failed.
    #[error("cannot write the result: {0}")]
    Write(#[source] io::Error),
    /// The file is empty.
    #[error("the file is empty, so it holds no result")]
    Empty,
    /// The file is larger than [`LARGEST_FILE`].
    #[error(
        "the file is larger than {} MiB, so it is no sunder result",
        LARGEST_FILE >> 20
    )]
    TooLarge,
    /// The file ends before the result does.
    #[error(
        "the result ends in the middle, at line {line}: the file was cut short; run the detection again"
    )]
    Truncated {
        /// The file's last line, from 1.
        line: usize,
    },
    /// The file is not JSON, or JSON of something else.
    #[error("the file is no sunder result: {0}")]
    Foreign(String),
    /// A newer version of Sunder wrote the file.
    #[error(
        "the result has schema version {found}, and this sunder reads up to {VERSION}: update sunder"
    )]
    Newer {
        /// The schema version of the file.
        found: u64,
    },
    /// The file claims to be a result, but is not one.
    #[error("the result is damaged: {0}")]
    Damaged(String),
}
