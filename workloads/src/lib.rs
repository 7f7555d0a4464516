//! The workloads: programs with known sharing, each in a variant that shares
//! and one that is fixed, and the one table of what a detector must say of
//! them; and what other programs are given. The tests of every other room and the
//! evaluation use this crate.
//!
//! It builds programs and tells what is expected of them; it must not judge,
//! observe, or depend on any other crate of the project, or the table would be
//! held against itself.
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

/// Which of the two programs that one source makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Variant {
    /// As it was written: with the sharing that the workload is about.
    Shared,
    /// With that sharing taken apart.
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

/// What can go wrong with the table or with building a workload.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file can't be read or written.
    #[error("{path}: {source}")]
    File {
        /// Which.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The table is not valid TOML or has an unknown key.
    #[error("{path}: {source}")]
    Syntax {
        /// The table's file.
        path: PathBuf,
        /// Where and what.
        source: Box<toml::de::Error>,
    },
    /// The table says something that can't be.
    #[error("workload {workload}: {what}")]
    Table {
        /// Whose entry.
        workload: String,
        /// What is wrong with it.
        what: String,
    },
    /// A source has no such marker, or has it twice.
    #[error("{path}: the marker `{marker}` occurs {count} times, not once")]
    Marker {
        /// The source.
        path: PathBuf,
        /// The comment's text, such as `alloc: args`.
        marker: String,
        /// How often it was found.
        count: usize,
    },
    /// The table has no workload of this name.
    #[error("there is no workload `{0}`; the table is workloads/expected.toml")]
    Unknown(String),
    /// The compiler can't be started.
    #[error("cannot run {compiler}: {source}; install it with setup/debian-packages")]
    NoCompiler {
        /// The command.
        compiler: String,
        /// Why not.
        source: std::io::Error,
    },
    /// The compiler refused the source.
    #[error("{workload} does not build:\n{command}\n{output}")]
    Compile {
        /// Which workload.
        workload: String,
        /// The whole command.
        command: String,
        /// What the compiler said.
        output: String,
    },
}

/// This crate's result.
pub type Result<T> = std::result::Result<T, Error>;
