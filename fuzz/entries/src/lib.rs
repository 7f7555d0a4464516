//! One function for each reader of data that Sunder did not write itself: it passes arbitrary bytes
//! to the reader and panics if an answer breaks a guarantee. Called by the fuzz targets
//! (`fuzz/fuzz_targets`) and, for the files of `fuzz/corpus` and random bytes, by this package's
//! tests. Any error of a reader is right; only a panic, a hang or a wrong answer is not.
#![forbid(unsafe_code)]

mod answer;
mod assembled;
mod code;
mod file;
mod input;
mod machine;
mod program;
mod recording;
mod result;
mod rewrite;
mod run;
mod segment;
mod trace;
mod transaction;

pub use assembled::assembled;
pub use code::code;
pub use program::program;
pub use recording::recording;
pub use result::result;
pub use rewrite::rewrite;
pub use run::run;
pub use segment::segment;
pub use trace::{blocks, trace};
pub use transaction::transaction;

/// An entry.
pub type Entry = fn(&[u8]);

/// All entries, by the names of their targets and of their folders in the corpus.
pub const ALL: &[(&str, Entry)] = &[
    ("assembled", assembled),
    ("blocks", blocks),
    ("code", code),
    ("program", program),
    ("recording", recording),
    ("result", result),
    ("rewrite", rewrite),
    ("run", run),
    ("segment", segment),
    ("trace", trace),
    ("transaction", transaction),
];
