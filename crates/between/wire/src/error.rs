//! Errors of the tool's side.

/// What can go wrong on the tool's side.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The kernel refused the memory file or its mapping.
    #[error("cannot make the segment shared with the target: {0}")]
    Create(#[source] std::io::Error),
    /// All entries of the registry are in use.
    #[error("more processes at a time than can be recorded")]
    NoEntry,
    /// The file is not a segment, or is truncated.
    #[error("this file is not a sunder segment (wrong magic number or too short)")]
    NotASegment,
    /// The segment comes from another version.
    #[error("the segment has version {found}, this sunder reads version {expected}")]
    Version {
        /// The version in the file.
        found: u32,
        /// The version of this build.
        expected: u32,
    },
}

/// Results of this crate.
pub type Result<T> = std::result::Result<T, Error>;
