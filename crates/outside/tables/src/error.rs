//! Errors of writing and reading tables.

use parquet::errors::ParquetError;
use std::path::{Path, PathBuf};

/// Why tables can't be written or read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TableError {
    /// A file or folder can't be made, opened, read or written.
    #[error("cannot {what} {path}: {source}")]
    File {
        /// What was tried: `read` or `write`.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: std::io::Error,
    },
    /// The folder holds something already.
    #[error("{path} is not empty: name a folder that does not exist yet, or an empty one")]
    NotEmpty {
        /// The folder.
        path: PathBuf,
    },
    /// The pages of a file are packed in a way that is not read here.
    #[error(
        "{path} is packed with {packing}, which is not read: have the engine write it with Zstandard, with \
         Snappy or unpacked (in DuckDB by `COMPRESSION zstd`)"
    )]
    Packing {
        /// The file.
        path: PathBuf,
        /// What the library calls the packing.
        packing: String,
    },
    /// The Parquet library refused a file.
    #[error("{path} is no Parquet file that can be used: {source}")]
    Parquet {
        /// The file.
        path: PathBuf,
        /// The library's error.
        source: ParquetError,
    },
    /// A table lacks a column, or has one of another type.
    #[error("{path} has no column '{column}' of {wanted}")]
    Column {
        /// The file.
        path: PathBuf,
        /// The column.
        column: String,
        /// The type that it must have.
        wanted: &'static str,
    },
    /// A row without a value where there must be one, or with one that no exporter writes.
    #[error("row {row} of {path} can't be used: {what}")]
    Row {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: u64,
        /// What is wrong.
        what: String,
    },
    /// Rows that are not in the order of `ord`.
    #[error(
        "{path} is not in order: row {row} has ord {ord} after {before}, so counts from it would be \
         wrong; write it again in the order of ord (with DuckDB: ORDER BY ord, and SET threads = 1), \
         or let the rows be sorted in memory (--sort)"
    )]
    Order {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: u64,
        /// Its number.
        ord: i64,
        /// The number of the row before.
        before: i64,
    },
    /// Two rows with the same number.
    #[error(
        "{path} has ord {ord} twice: rows were written twice, or files of two traces are mixed"
    )]
    Twice {
        /// The file.
        path: PathBuf,
        /// The number.
        ord: i64,
    },
    /// A folder that is no bucket of an exported trace.
    #[error(
        "{path} is no bucket of an exported trace: a folder such as bucket=07, with trace.json in the \
         folder above it, is one"
    )]
    NoBucket {
        /// The folder.
        path: PathBuf,
    },
    /// The description of the trace can't be used.
    #[error("{path} can't be used: {what}")]
    About {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
    /// Rows in a bucket in which their line does not belong.
    #[error("row {row} of {path} does not belong there: its line is of bucket {bucket}")]
    Bucket {
        /// The file.
        path: PathBuf,
        /// The row, from 0.
        row: u64,
        /// Where it belongs.
        bucket: u32,
    },
    /// The trace could not be read to its end.
    #[error("{0}")]
    Stopped(String),
}

impl TableError {
    /// An error of reading `path`.
    pub(crate) fn read(path: &Path, source: std::io::Error) -> Self {
        Self::File {
            what: "read",
            path: path.to_owned(),
            source,
        }
    }

    /// An error of writing `path`.
    pub(crate) fn write(path: &Path, source: std::io::Error) -> Self {
        Self::File {
            what: "write",
            path: path.to_owned(),
            source,
        }
    }

    /// An error of the library about `path`.
    pub(crate) fn parquet(path: &Path, source: ParquetError) -> Self {
        let path = path.to_owned();
        // As the library of this version says it.
        let said = source.to_string();
        match said.split_once("Disabled feature at compile time: ") {
            Some((_, packing)) => Self::Packing {
                path,
                packing: packing.to_owned(),
            },
            None => Self::Parquet { path, source },
        }
    }
}
