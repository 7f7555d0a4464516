//! The workloads: programs with known sharing, each in a variant that shares and one that is fixed,
//! and the one table of the expected verdicts; and the inputs of other programs. The tests of every
//! other room and the evaluation use this crate.
//!
//! It builds programs and returns expectations. It must not judge, observe, or depend on any other
//! crate of the project, or the table would be checked against itself.
#![forbid(unsafe_code)]

mod build;
pub mod given;
mod marker;
mod scst;
mod table;

use std::path::PathBuf;

pub use build::default_out_dir;
pub use scst::{PARALLEL, Parallel};
pub use table::{
    Expected, Language, Need, Neighbour, ObjectKind, Position, Sharing, Table, Verdict, Workload,
};

/// One of the two programs that are made from one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// As it was written: with the sharing that the workload is about.
    Shared,
    /// Without that sharing.
    Fixed,
}

impl Variant {
    /// Both, the shared one first.
    pub const ALL: [Self; 2] = [Self::Shared, Self::Fixed];

    /// `shared` or `fixed`, as in the table and in file names.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Fixed => "fixed",
        }
    }
}

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
