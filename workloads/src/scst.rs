//! The four parallel programs of `scst/`: our own small versions, written from the algorithms, of
//! those in the SCSTallocator paper's evaluation. One thread allocates everything from several call
//! sites in several sizes, then all threads work on it. They have no verdicts, so they are not in
//! the table; the evaluation replays their traces under several placements.

use crate::build::finish;
use crate::error::Result;
use crate::table::home;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One of the programs. Its arguments are THREADS, SIZE and possibly a variant. It prints a
/// checksum; with `WORKLOAD_CHECK` set also facts, each a name and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parallel {
    /// Its name; that of its source has `.c` after it.
    pub name: &'static str,
    /// What it computes.
    pub function: &'static str,
    /// The unit of SIZE.
    pub unit: &'static str,
    /// SIZE for tests: a few milliseconds.
    pub test_size: u64,
    /// SIZE for the evaluation: about as many references as the program of this name has in the
    /// paper's Table 1.
    pub size: u64,
}

/// The programs, in the order of the paper's Table 1.
pub const PARALLEL: [Parallel; 4] = [
    Parallel {
        name: "cholesky",
        function: "Cholesky factorisation of a sparse matrix",
        unit: "points on a side of the grid",
        test_size: 24,
        size: 112,
    },
    Parallel {
        name: "barnes",
        function: "gravity among bodies by an octree",
        unit: "bodies",
        test_size: 400,
        size: 2048,
    },
    Parallel {
        name: "mp3d",
        function: "flow of a rarefied gas",
        unit: "particles",
        test_size: 2000,
        size: 36_000,
    },
    Parallel {
        name: "volrend",
        function: "ray casting through a volume with an octree",
        unit: "voxels on a side of the volume",
        test_size: 20,
        size: 88,
    },
];

impl Parallel {
    /// The program of this name, if there is one.
    #[must_use]
    pub fn get(name: &str) -> Option<&'static Self> {
        PARALLEL.iter().find(|program| program.name == name)
    }

    /// The source file.
    #[must_use]
    pub fn source_path(&self) -> PathBuf {
        home().join("scst").join(self.name).with_extension("c")
    }

    /// Compiles it to `program` with `compiler`, which may have arguments, such as `cc` of
    /// `sunder cc`.
    ///
    /// # Errors
    /// If the compiler is missing or prints anything: warnings are errors.
    pub fn compile(&self, compiler: &mut Command, program: &Path) -> Result<()> {
        compiler
            .args(["-std=gnu11", "-O2", "-g", "-pthread"])
            .args(["-Wall", "-Wextra", "-Werror", "-o"])
            .arg(program)
            .arg(self.source_path())
            .arg("-lm");
        finish(compiler, self.name)
    }
}
