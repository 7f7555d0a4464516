//! Why a recording could not be imported. Every message says what to do, where something can be
//! done.

use std::io;
use std::path::PathBuf;

/// A command that records time samples that can be imported.
pub const RECORD_SAMPLES: &str = "perf record -e cpu-clock:u -F 4000 --sample-cpu -d --user-regs=\
     ax,bx,cx,dx,si,di,bp,sp,ip,r8,r9,r10,r11,r12,r13,r14,r15 -- PROGRAM";
/// A command that records memory events that can be imported, where there is a PMU.
pub const RECORD_MEMORY: &str = "perf mem record -- PROGRAM";

/// Why a file could not be imported.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ImportError {
    /// The file could not be opened or read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of opening or reading it.
        source: io::Error,
    },
    /// A folder, as `perf record --threads` writes.
    #[error(
        "{} is a folder; recordings made with `perf record --threads` are not supported, \
         record without it", .0.display()
    )]
    Folder(PathBuf),
    /// A pipe or a device. The file is read twice, and such a one may have no end.
    #[error("{} is no regular file; save the recording in a file first", .0.display())]
    NotAFile(PathBuf),
    /// The file is no recording of perf.
    #[error("{} is not a perf.data file", .0.display())]
    Foreign(PathBuf),
    /// Written by a perf from before 2010 or after this program.
    #[error("{} has the format `{magic}` of another version of perf; only PERFILE2 is supported", path.display())]
    Version {
        /// The file.
        path: PathBuf,
        /// The first bytes of the file, as text.
        magic: String,
    },
    /// Recorded on another architecture.
    #[error("{} was recorded on {machine}; only recordings from x86_64 can be read", path.display())]
    Machine {
        /// The file.
        path: PathBuf,
        /// The architecture that it names.
        machine: String,
    },
    /// `perf record` was killed before it wrote the file's header.
    #[error("{} is unfinished: perf record was ended before it could complete the file; record again and end the program instead", .0.display())]
    Unfinished(PathBuf),
    /// The end is missing.
    #[error("{} is truncated: {needed} bytes are announced, {there} are there", path.display())]
    Truncated {
        /// The file.
        path: PathBuf,
        /// The least size in bytes that its header promises.
        needed: u64,
        /// Its size in bytes.
        there: u64,
    },
    /// A part of the file contradicts another.
    #[error("{} is damaged: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// The contradiction, in words.
        what: String,
    },
    /// Recorded without fields that are needed.
    #[error("the samples in {} have no {missing}; record with `{RECORD_SAMPLES}`, or with `{RECORD_MEMORY}` on a machine with memory events", path.display())]
    MissingFields {
        /// The file.
        path: PathBuf,
        /// The missing fields, in words.
        missing: &'static str,
    },
    /// A recording in which nothing happened.
    #[error("{} holds no samples of user code; was the program running?", .0.display())]
    NoSamples(PathBuf),
}
