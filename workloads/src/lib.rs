//! The workloads: programs with known sharing, each in a variant that shares and one that is fixed,
//! and the one table of the expected verdicts; and the inputs of other programs. The tests of every
//! other room and the evaluation use this crate.
//!
//! It builds programs and returns expectations. It must not judge, observe, or depend on any other
//! crate of the project, or the table would be checked against itself.
#![forbid(unsafe_code)]

mod build;
mod error;
pub mod given;
mod marker;
mod plain;
mod scst;
mod table;
mod variant;

pub use build::default_out_dir;
pub use error::{Error, Result};
pub use scst::{PARALLEL, Parallel};
pub use table::{
    Expected, Language, Need, Neighbour, ObjectKind, Position, Sharing, Table, Verdict, Workload,
};
pub use variant::Variant;
