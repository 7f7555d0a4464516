//! Errors of this crate.

use std::path::PathBuf;

/// Errors of the table and of building a workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be read or written.
    #[error("{path}: {source}")]
    File {
        /// The file.
        path: PathBuf,
        /// The error of reading or writing it.
        source: std::io::Error,
    },
    /// The table is not valid TOML or has an unknown key.
    #[error("{path}: {source}")]
    Syntax {
        /// The table's file.
        path: PathBuf,
        /// The error and its position.
        source: Box<toml::de::Error>,
    },
    /// An entry of the table contradicts itself.
    #[error("workload {workload}: {what}")]
    Table {
        /// The name of the entry.
        workload: String,
        /// The contradiction, in words.
        what: String,
    },
    /// A source does not have the marker exactly once.
    #[error("{path}: the marker `{marker}` occurs {count} times, not once")]
    Marker {
        /// The source.
        path: PathBuf,
        /// The comment's text, such as `alloc: args`.
        marker: String,
        /// How often it occurs.
        count: usize,
    },
    /// The table has no workload of this name.
    #[error("there is no workload `{0}`; the table is workloads/expected.toml")]
    Unknown(String),
    /// The compiler can't be started.
    #[error("cannot run {compiler}: {source}; install it with setup/debian-packages")]
    NoCompiler {
        /// The compiler's command.
        compiler: String,
        /// The error of starting it.
        source: std::io::Error,
    },
    /// The compiler refused the source.
    #[error("{workload} does not build:\n{command}\n{output}")]
    Compile {
        /// The name of the workload.
        workload: String,
        /// The whole command line.
        command: String,
        /// The output of the compiler.
        output: String,
    },
}

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;
